"""Answers that must have a form, over the websocket, from daemons with a tiny model."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from tests.random_schemas import Schema
from tests.real_daemon import Stream, ask, quiet, wire
from tests.server.harness import Frame
from tests.tiny_daemons import (
    Requests,
    Start,
    check_ledgers,
    check_same,
    expected,
    roomy,
    squeeze,
    start,
    tight,
)

__all__ = ["start"]  # the fixture

SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "the": {"type": "string", "minLength": 12, "maxLength": 30},
        "on": {"type": "array", "items": {"type": "integer", "maximum": 999}, "minItems": 3},
        "in": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 20}]},
    },
    "required": ["the", "on", "in"],
    "additionalProperties": False,
}
SCHEMA["properties"]["on"]["maxItems"] = 8
REGEX = "(then|[0-9]{2}/){20,25}"


def forms() -> dict[str, dict[str, Any]]:
    """Parameters that ask for a form, by a name."""
    wrapped = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    return {
        "schema": {"response_format": wrapped},
        "guided-json": {"guided_json": SCHEMA},
        "regex": {"guided_regex": REGEX},
        "choice": {"guided_choice": ["there is none", "one", "two of them"]},
        "grammar": {
            "guided_grammar": 'start: pair{6}\npair: "(" WORD "," WORD ")"\nWORD: /[a-e]{4}/'
        },
    }


def check_form(name: str, text: str) -> None:
    """``name`` begins as one of ``forms`` does."""
    if name.startswith(("schema", "guided-json")):
        assert jsonschema_rs.is_valid(SCHEMA, json.loads(text)), text
    elif name.startswith("regex"):
        assert re.fullmatch(REGEX, text)
    elif name.startswith("choice"):
        assert text in ("there is none", "one", "two of them")
    else:
        assert re.fullmatch(r"(\([a-e]{4},[a-e]{4}\)){6}", text)


def requests() -> Requests:
    """Every form, greedy and drawn, once with several choices."""
    ways: dict[str, dict[str, Any]] = {
        "greedy": {"temperature": 0},
        "seeded": {"seed": 5, "logprobs": 1},
        "four": {"seed": 6, "n": 4},
    }
    return {
        f"{name}-{way}": {
            "prompt": f"the answer of {name}, {way}:",
            "priority": 1,
            "params": {"max_tokens": 200, **form, **params},
        }
        for name, form in forms().items()
        for way, params in ways.items()
    }


def test_answers_have_the_form(start: Start) -> None:
    wanted = requests()
    for id, stream in expected(start, wanted).items():
        for choice in stream.choices:
            check_form(id, choice["text"])
            assert choice["finish_reason"] == "stop"
        assert stream.done["usage"]["completion_tokens"] > 0
    with wire(roomy(start)) as client:
        assert "structured_output" in client.hello["features"]
        check_same(ask(client, wanted), expected(start, wanted))  # a seed's text comes again


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_the_same_answers_after_preemptions(start: Start, mode: str) -> None:
    low = {id: each for id, each in requests().items() if "choice" not in id}
    references = expected(start, low)
    with wire(tight(start, mode)) as client:
        before = quiet(client)
        streams = squeeze(client, low)
        check_same(streams, references)
        assert sum(stream.preemptions for id, stream in streams.items() if id in low) > 0
        check_ledgers(streams, before, quiet(client), mode)
    for id, reference in references.items():
        for text in reference.texts:
            check_form(id, text)


def test_not_streamed_and_from_tokens(start: Start) -> None:
    with wire(roomy(start)) as client:
        for id, form in forms().items():
            [*_, done] = client.generate(
                id, prompt_tokens=[5, 6, 7], stream=False, params={"max_tokens": 200, **form}
            )
            [choice] = done["choices"]
            check_form(id, choice["text"])
            assert choice["finish_reason"] == "stop"


def test_max_tokens_still_cuts(start: Start) -> None:
    with wire(roomy(start)) as client:
        params = {"guided_regex": "[a-z]{50}", "max_tokens": 3}
        [*_, done] = client.generate("cut", prompt="x", stream=False, params=params)
        [choice] = done["choices"]
        assert choice["finish_reason"] == "length"
        assert re.fullmatch("[a-z]+", choice["text"])


COSTLY: dict[str, dict[str, Any]] = {
    "repeats": {"guided_regex": "(((a|b){0,100}){0,100}){0,100}"},
    "states": {"guided_regex": r"(a|b)*a(a|b){200}"},
    "nested-stars": {"guided_regex": "((a+)+)+b?"},
    "long-text": {"guided_json": {"type": "string", "maxLength": 10**9}},
    "many-items": {
        "guided_json": {"type": "array", "items": {"type": "string"}, "minItems": 10**6}
    },
    "choices": {"guided_choice": [f"value number {n}" for n in range(1000)]},
    "enum": {"guided_json": {"enum": [f"value number {n}" for n in range(5000)]}},
    "tree": {"guided_json": {"type": "object", "additionalProperties": {"$ref": "#"}}},
    "ambiguous": {"guided_grammar": 'start: start start | "a" | ""'},
    "letters": {"guided_regex": r"(\pL|\pN){1,500}(\w{3,80}\W){200}"},
}


def test_costly_forms_end_or_fail_alone(start: Start) -> None:
    """All at once, beside one without a form, which is answered as ever."""
    plain = {"prompt": "the story", "params": {"temperature": 0, "max_tokens": 60}}
    reference = expected(start, {"plain": plain})["plain"]
    with wire(roomy(start)) as client:
        for name, form in COSTLY.items():
            client.send(type="generate", id=name, prompt="x", params={"max_tokens": 60, **form})
        client.send(type="generate", id="plain", **plain)
        frames: dict[str, list[Frame]] = {}
        open = {*COSTLY, "plain"}
        while open:
            frame = client.receive()
            frames.setdefault(frame["id"], []).append(frame)
            if frame["type"] in ("done", "error"):
                open.remove(frame["id"])
        for name in COSTLY:
            last = frames[name][-1]
            assert last["type"] == "done" or last["code"] == "bad_request", last
        Stream(frames["plain"]).check_same(reference)
        quiet(client)


def test_cancelled_while_it_is_checked_or_built(start: Start) -> None:
    with wire(roomy(start)) as client:
        for at in range(8):
            values = [f"value {at} of {n}" for n in range(4000)]
            client.send(
                type="generate", id=f"c{at}", prompt="x", params={"guided_json": {"enum": values}}
            )
            if at % 2:
                client.send(type="cancel", id=f"c{at}")
        ends: dict[str, Frame] = {}
        while len(ends) < 8:
            frame = client.receive()
            if frame["type"] in ("done", "error"):
                assert frame["id"] not in ends
                ends[frame["id"]] = frame
        for at in range(8):
            [choice] = ends[f"c{at}"]["choices"]
            assert choice["finish_reason"] == ("cancelled" if at % 2 else "stop")
        quiet(client)


def test_a_client_that_leaves_meanwhile_leaves_nothing(start: Start) -> None:
    url = roomy(start)
    with wire(url) as client:
        for at in range(6):
            values = [f"left {at} of {n}" for n in range(4000)]
            client.send(
                type="generate", id=f"l{at}", prompt="x", params={"guided_json": {"enum": values}}
            )
        client.drop()
    with wire(url) as client:
        quiet(client)
