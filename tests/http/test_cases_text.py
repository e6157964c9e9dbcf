"""Streamed text, stops, ends, templates and usage over both edges (cases B20, B22 to B24, B26)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.http.edges import EDGES, HTTP_EDGES, Served, ask, dumps, events, post
from tests.http.models import serving, text_of, tiny_text
from tests.server.harness import Daemon
from tests.text import small_models
from tests.tiny.models import steered
from tests.tiny.tokenizer import EOS, byte_id

PIECES = ("one", " tw", "o th", "ree", " four")
WHOLE = "one two three four"
NEWLINE = byte_id(ord("\n"))
LETTER = byte_id(ord("a"))
Folders = Callable[[], Path]


@pytest.fixture(scope="module")
def counting() -> Iterator[Served]:
    """A model that says "one two three four", again and again."""
    with serving() as serve:
        yield serve(lambda folder: steered(folder, PIECES))


@pytest.fixture(scope="module")
def ending() -> Iterator[Served]:
    """A model that says "a", a line's end, and that it has ended."""
    with serving() as serve:
        yield serve(lambda folder: steered(folder, [LETTER, NEWLINE, EOS]))


# --- B20: stop strings ----------------------------------------------------------------------------


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("stop", "before", "found"),
    [
        ("two three", "one ", "two three"),
        ("ree", "one two th", "ree"),
        ("one", "", "one"),
        (["two", "two three"], "one ", "two"),
        (["two three", "two"], "one ", "two"),
        (["three", "two three"], "one ", "two three"),
        (["four", "three"], "one two ", "three"),
        (["e t"], "on", "e t"),
        ("fourone", "one two three ", "fourone"),
    ],
)
def test_b20_a_stop_string_over_tokens(
    counting: Served, edge: str, stop: str | list[str], before: str, found: str, include: bool
) -> None:
    answer = ask(
        edge,
        counting,
        "x",
        max_tokens=12,
        temperature=0,
        stop=stop,
        include_stop_str_in_output=include,
    )
    assert answer.text == before + (found if include else "")
    assert answer.finish_reason == "stop"
    assert answer.choices[0].stop_reason == found


@pytest.mark.parametrize("stop", ["two three five", "fone", "xone", ["fo", "two five"][1:]])
def test_b20_what_only_begins_like_a_stop_string_comes_whole(
    counting: Served, edge: str, stop: str | list[str]
) -> None:
    """Nor does a match use text of the prompt, which ends in "f" here."""
    answer = ask(edge, counting, "leaf", max_tokens=4, temperature=0, stop=stop)
    assert (answer.text, answer.finish_reason) == ("one two three", "length")
    assert answer.completion_tokens == 4


# --- B22: min_tokens, ignore_eos ------------------------------------------------------------------


def test_b22_ends_where_the_model_says(ending: Served, edge: str) -> None:
    answer = ask(edge, ending, "x", max_tokens=10, temperature=0)
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("a\n", "stop", 3)


def test_b22_no_end_before_min_tokens(ending: Served, edge: str) -> None:
    params = {"min_tokens": 10, "max_tokens": 30, "stop": ["\n"], "temperature": 0}
    answer = ask(edge, ending, "x", **params)
    assert 10 <= answer.completion_tokens < 30
    assert answer.finish_reason == "stop"


def test_b22_ignore_eos_goes_on_to_max_tokens(ending: Served, edge: str) -> None:
    answer = ask(edge, ending, "x", ignore_eos=True, max_tokens=10, temperature=0)
    assert (answer.finish_reason, answer.completion_tokens) == ("length", 10)
    assert answer.text == "a\na\na\na"


def test_b22_ignore_eos_does_not_ignore_stop_token_ids(ending: Served, edge: str) -> None:
    params = {"ignore_eos": True, "stop_token_ids": [NEWLINE], "max_tokens": 10, "temperature": 0}
    answer = ask(edge, ending, "x", **params)
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("a", "stop", 2)
    assert answer.choices[0].stop_reason == NEWLINE


def test_b22_as_many_as_must_be_and_may_be(ending: Served, edge: str) -> None:
    answer = ask(edge, ending, "x", min_tokens=5, max_tokens=5, temperature=0)
    assert answer.completion_tokens == 5


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"min_tokens": 11, "max_tokens": 10}, "min_tokens"),
        ({"min_token": 3}, "min_token"),
        ({"ignore_eos": "yes"}, "ignore_eos"),
    ],
)
def test_b22_refused_by_name(ending: Served, edge: str, params: dict[str, Any], named: str) -> None:
    answer = ask(edge, ending, "x", **params)
    assert answer.status == 400
    assert named in answer.message
    assert edge not in HTTP_EDGES or answer.param == named


# --- B23: spaces ----------------------------------------------------------------------------------

TOKENIZERS = {
    "byte-level": small_models.byte_level_tokenizer,
    "sentencepiece": small_models.sentencepiece_tokenizer,
    "metaspace": small_models.metaspace_tokenizer,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def spelling(
    request: pytest.FixtureRequest, folders: Folders
) -> Iterator[tuple[Tokenizer, Served]]:
    """A tokenizer, and a daemon whose engine says the prompt's tokens again."""
    tokenizer = TOKENIZERS[request.param]()
    text = text_of(tokenizer, folders() / "text")
    engine = {"vocab_size": tokenizer.get_vocab_size(with_added_tokens=True)}
    daemon = Daemon(folders(), text, engine=engine, http="127.0.0.1:0")
    yield tokenizer, Served.of(daemon)
    assert daemon.stop()[0] == 0


def _sequences(tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Outputs that begin with blanks or special tokens, lines with indentation, anything."""
    blank = tokenizer.token_to_id("▁")
    if blank is None:
        blank = tokenizer.token_to_id("Ġ")
    word = tokenizer.encode("hello there", add_special_tokens=False).ids
    code = tokenizer.encode("def main():\n    return {'key'", add_special_tokens=False).ids
    special = tokenizer.token_to_id("</s>")
    for blanks in range(3):
        yield [blank] * blanks + word
        yield [special, *[blank] * blanks, *word, special, *code]
    yield code
    dice = random.Random(23)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    for _ in range(12):
        yield [dice.randrange(size) for _ in range(20)]


@pytest.mark.parametrize("skip", [True, False])
def test_b23_joined_pieces_are_what_the_tokenizer_decodes(
    spelling: tuple[Tokenizer, Served], edge: str, skip: bool
) -> None:
    tokenizer, served = spelling
    for ids in _sequences(tokenizer):
        answer = ask(
            edge,
            served,
            ids,
            max_tokens=len(ids),
            ignore_eos=True,
            skip_special_tokens=skip,
            temperature=0,
        )
        assert answer.text == tokenizer.decode(ids, skip_special_tokens=skip), ids
        assert answer.completion_tokens == len(ids)


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
