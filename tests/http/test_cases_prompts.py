"""Chat templates, lists of prompts and usage over both edges (cases B24 and B26)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.http.edges import EDGES, HTTP_EDGES, Served, ask, dumps, events, post
from tests.http.models import tiny_text
from tests.server.harness import Daemon

Folders = Callable[[], Path]

# --- B24: templates -------------------------------------------------------------------------------

TURNS = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}"
    "{% elif (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + TURNS
)


def _user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("writes_bos", [True, False], ids=["template", "no-template"])
@pytest.mark.parametrize("adds_bos", [True, False], ids=["tokenizer", "no-tokenizer"])
def test_b24_a_chat_has_one_bos(folders: Folders, writes_bos: bool, adds_bos: bool) -> None:
    template = ("{{ bos_token }}" if writes_bos else "") + TURNS
    text = tiny_text(folders() / "t", add_bos=adds_bos, chat_template=template)
    daemon = Daemon(folders(), text, http="127.0.0.1:0")
    served = Served.of(daemon)
    tokenizer = Tokenizer.from_file(str(text / "tokenizer.json"))
    turns = tokenizer.encode("[user] hi\n", add_special_tokens=False).ids
    params = {"skip_special_tokens": False, "ignore_eos": True}
    for edge in EDGES:
        chat = ask(edge, served, messages=_user("hi"), max_tokens=len(turns) + 1, **params)
        assert chat.text == "<|bos|>[user] hi\n"
        assert chat.prompt_tokens == len(turns) + 1
        raw = ask(edge, served, "xq", max_tokens=2 + adds_bos, **params)
        assert raw.text == "<|bos|>" * adds_bos + "xq"
        assert raw.prompt_tokens == 2 + adds_bos
    assert daemon.stop()[0] == 0


@pytest.fixture(scope="module")
def strict(folders: Folders) -> Iterator[Served]:
    """A template that refuses much."""
    text = tiny_text(folders() / "t", chat_template=STRICT)
    daemon = Daemon(folders(), text, http="127.0.0.1:0")
    yield Served.of(daemon)
    code, errors = daemon.stop()
    assert (code, "Traceback" in errors) == (0, False)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"role": "system", "content": "be good"}], "no system role"),
        (_user("a") + _user("b"), "roles must alternate"),
        (_user(None), "messages[0].content"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"content": "a"}], "role"),
        (_user(5), "content"),
        (_user([{"type": "image_url", "image_url": {"url": "x"}}]), "content"),
        ([], "messages"),
        ("hi", "messages"),
    ],
)
def test_b24_what_the_template_refuses_is_a_bad_request(
    strict: Served, edge: str, messages: Any, says: str
) -> None:
    answer = ask(edge, strict, messages=messages, max_tokens=3)
    assert answer.status == 400
    assert says in answer.message
    assert ask(edge, strict, messages=_user("hi"), max_tokens=4).text == "[us"


def test_b24_other_parts_than_text_are_refused_plainly(strict: Served) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "input_audio", "input_audio": {"data": ""}}]
    for edge in HTTP_EDGES:
        answer = ask(edge, strict, messages=_user(parts))
        assert (answer.status, answer.message.count("no images, no sound")) == (400, 1)
        assert "messages[0].content[1]" in answer.message


def test_b24_parts_of_text_are_joined_over_http(strict: Served) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    for edge in HTTP_EDGES:
        answer = ask(edge, strict, messages=_user(parts), max_tokens=9)
        assert answer.text == "[user] hi\n"
    assert ask("wire", strict, messages=_user(parts)).status == 400


# --- B26: lists of prompts ------------------------------------------------------------------------

PROMPTS = ["xxxxxxxxxxxxb", "yyyyb", "b"]  # "b" ends them: the last one first


@pytest.mark.parametrize("usage", [None, {"include_usage": True}, {"include_usage": False}])
def test_b26_prompts_and_choices_are_counted_in_order(served: Served, usage: Any) -> None:
    body = {"prompt": PROMPTS, "n": 2, "stop": "b", "max_tokens": 40}
    whole = post(f"{served.http}/v1/completions", dumps(body)).json()
    texts = [prompt.removesuffix("b") for prompt in PROMPTS for _ in range(2)]
    assert [choice["index"] for choice in whole["choices"]] == list(range(6))
    assert [choice["text"] for choice in whole["choices"]] == texts
    generated = 2 * sum(map(len, PROMPTS))
    counted = {
        "prompt_tokens": sum(map(len, PROMPTS)),
        "completion_tokens": generated,
        "total_tokens": generated + sum(map(len, PROMPTS)),
    }
    assert counted.items() <= whole["usage"].items()

    streamed = post(
        f"{served.http}/v1/completions", dumps({**body, "stream": True, "stream_options": usage})
    )
    chunks = events(streamed.text)
    if usage == {"include_usage": True}:
        *chunks, last = chunks
        assert last["choices"] == []
        assert counted.items() <= last["usage"].items()
    assert all(len(chunk["choices"]) == 1 for chunk in chunks), "no further chunk without choices"
    found, ends = [""] * 6, []
    for chunk in chunks:
        (choice,) = chunk["choices"]
        found[choice["index"]] += choice["text"]
        ends += [choice["index"]] * (choice["finish_reason"] is not None)
    assert found == texts
    assert sorted(ends) == list(range(6))
    assert ends[-1] in (0, 1), "the first prompt's answers are the last to end"


def test_b26_choices_over_each_edge(served: Served, edge: str) -> None:
    answer = ask(edge, served, "abc", n=3, max_tokens=4)
    assert [choice.text for choice in answer.choices] == ["abca"] * 3
    assert (answer.prompt_tokens, answer.completion_tokens) == (3, 12)
