"""Patterns that read well and cannot be followed far: a refusal, or an end that blames them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.edges import Served, ask, dumps, events, post, refused, together
from tests.http.models import serving
from tests.real_daemon import quiet, wire
from tests.tiny.models import build
from tests.tiny.tokenizer import EOS, byte_id

EXPLODING = "((a{1,100}){1,100}){1,100}"
# "b" alone could be followed to its end; that, and any end, is made too unlikely to be drawn.
LATER = {"guided_regex": f"b|{EXPLODING}", "logit_bias": {byte_id(ord("b")): -100, EOS: -100}}
LATER_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "pattern": f"^(b|{EXPLODING})$"}},
            "required": ["x"],
        },
    },
}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One engine process, from the first test to the last."""
    with serving() as serve:
        served = serve(lambda folder: build("llama", folder), "--page-size=8", "--max-num-seqs=8")
        with wire(served.socket) as client:
            pid = client.status()["engine_pid"]
            yield served
            assert quiet(client)["engine_pid"] == pid


@pytest.mark.parametrize(
    ("field", "form"),
    [
        ("guided_regex", {"guided_regex": EXPLODING}),
        ("guided_regex", {"guided_regex": f"x{{0,9}}({EXPLODING} ?)+"}),
        ("guided_json", {"guided_json": {"type": "string", "pattern": f"^{EXPLODING}$"}}),
        (
            "guided_json",  # so deep that following the whole does not meet it
            {
                "guided_json": {
                    "type": "object",
                    "properties": {
                        "a": {"type": "string"},
                        "b": {"type": "string", "pattern": f"^{EXPLODING}$"},
                    },
                    "required": ["a", "b"],
                }
            },
        ),
        (
            "guided_grammar",
            {"guided_grammar": 'start: A\nA: B{1,100}\nB: C{1,100}\nC: "a"{1,100}'},
        ),
        (
            "guided_grammar",
            {"guided_grammar": 'start: a~1..100\na: b~1..100\nb: c~1..100\nc: "a"'},
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(
    edge: str, served: Served, field: str, form: dict[str, Any]
) -> None:
    answer = ask(edge, served, "the story", **form)
    refused(answer, edge, field)
    assert "too complex" in answer.message


def test_what_fails_later_blames_the_pattern(edge: str, served: Served) -> None:
    answer = ask(edge, served, "the story", max_tokens=400, temperature=0, **LATER)
    refused(answer, edge, "guided_regex")
    assert "too many expressions" in answer.message


def test_those_of_the_same_pattern_fail_alone(served: Served) -> None:
    """What llguidance knows of a pattern is shared by all its answers, its failure too."""
    short = {"max_tokens": 5, "temperature": 0, **LATER}
    long = {"max_tokens": 400, "temperature": 0, **LATER}
    asked = [short, long, short, long, short]
    answers = together([lambda each=each: ask("http", served, "the", **each) for each in asked])
    assert [answer.status for answer in answers] == [200, 400, 200, 400, 200]
    assert ask("http", served, "the", **short).text == answers[0].text


def test_a_tool_is_blamed_for_its_pattern(served: Served) -> None:
    body = {
        "messages": [{"role": "user", "content": "abc"}],
        "tools": [LATER_TOOL],
        "tool_choice": "required",
        "logit_bias": {**LATER["logit_bias"], byte_id(ord('"')): -100},
        "temperature": 0,
    }
    url = f"{served.http}/v1/chat/completions"
    whole = post(url, dumps(body)).json()["error"]
    streamed = events(post(url, dumps({**body, "stream": True})).text)[-1]["error"]
    for error in (whole, streamed):
        assert (error["param"], error["code"]) == ("tools", "bad_request"), error
        assert "too many expressions" in error["message"]
