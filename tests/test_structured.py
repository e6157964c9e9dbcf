"""Answers that must have a form, over the websocket, from daemons with real models."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.random_schemas import Schema, random_schema
from tests.real_daemon import Stream, ask, daemon, quiet, wire
from tests.server.harness import Client, Frame
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


def nested(depth: int) -> Schema:
    schema: Schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def schema_of(schema: Schema) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    }


IN_SCHEMA = "params.response_format.json_schema.schema: "
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "deep": (schema_of(nested(300)), IN_SCHEMA),
    "circle": (schema_of({"$ref": "#"}), IN_SCHEMA + "no answer is allowed"),
    "remote": (schema_of({"$ref": "http://127.0.0.1:1/x"}), IN_SCHEMA),
    "file": (schema_of({"$ref": "file:///etc/passwd"}), IN_SCHEMA),
    "huge-enum": (schema_of({"enum": [f"number {n}" for n in range(50_000)]}), IN_SCHEMA),
    "many-properties": (
        schema_of({"type": "object", "properties": {f"p{n}": {} for n in range(3000)}}),
        IN_SCHEMA,
    ),
    "explosion": (
        schema_of(
            {
                "allOf": [
                    {
                        "anyOf": [
                            {"properties": {f"p{n}{m}": {"pattern": f"^a{m}"}}} for m in range(6)
                        ]
                    }
                    for n in range(16)
                ]
            }
        ),
        IN_SCHEMA,
    ),
    "remainders": (
        schema_of({"type": "integer", "multipleOf": 99999989}),
        IN_SCHEMA + "multipleOf",
    ),
    "remainders-together": (
        {"guided_json": {"allOf": [{"multipleOf": n} for n in (97, 89, 83)]}},
        "params.guided_json: multipleOf",
    ),
    "keyword": (schema_of({"type": "array", "uniqueItems": True}), IN_SCHEMA + "Unimplemented"),
    "format": (schema_of({"type": "string", "format": "ipv9"}), IN_SCHEMA + "Unknown format"),
    "type": (schema_of({"type": "strin"}), IN_SCHEMA),
    "nothing": (
        schema_of({"type": "object", "properties": {"a": False}, "required": ["a"]}),
        IN_SCHEMA,
    ),
    "style": (schema_of({"x-guidance": {"whitespace_flexible": True}}), IN_SCHEMA + "x-guidance"),
    "no-schema": ({"response_format": {"type": "json_schema"}}, "params.response_format"),
    "other-kind": ({"response_format": {"type": "xml"}}, "params.response_format.type: "),
    "unknown-field": (
        {"response_format": {"type": "text", "x": 1}},
        "params.response_format.x: there is no such field",
    ),
    "regex": ({"guided_regex": "(a"}, "params.guided_regex: unclosed group"),
    "regex-back": ({"guided_regex": r"(a)\1"}, "params.guided_regex: backreferences"),
    "regex-look": ({"guided_regex": "(?=a)b"}, "params.guided_regex: look-around"),
    "regex-nothing": ({"guided_regex": r"[^\s\S]"}, "params.guided_regex: no answer is allowed"),
    "regex-long": ({"guided_regex": "a" * 20_000}, "params.guided_regex: "),
    "regex-deep": ({"guided_regex": "(" * 5000 + "a" + ")" * 5000}, "params.guided_regex: "),
    "choices": ({"guided_choice": []}, "params.guided_choice: "),
    "empty-choice": ({"guided_choice": [""]}, "params.guided_choice[0]: "),
    "grammar": ({"guided_grammar": "start: nowhere"}, "params.guided_grammar: unknown name"),
    "grammar-deep": (
        {"guided_grammar": "start: " + "(" * 3000 + '"a"' + ")" * 3000},
        "params.guided_grammar: ",
    ),
    "grammar-nothing": ({"guided_grammar": "start: start"}, "the grammar cannot be used: "),
    "grammar-token": ({"guided_grammar": "start: <|none|>"}, "the grammar cannot be used: unknown"),
    "attribute": ({"guided_grammar": "start: a\na[temperature=1]: /x/"}, "params.guided_grammar: "),
    "two": ({"guided_regex": "a", "guided_choice": ["a"]}, "params: give at most one of "),
    "min-tokens": ({"guided_regex": "a", "min_tokens": 2}, "params.min_tokens: not with"),
    "ignore-eos": ({"guided_regex": "a", "ignore_eos": True}, "params.ignore_eos: not with"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_form_is_refused_by_name(start: Start, name: str) -> None:
    """And the daemon answers the next request as ever."""
    params, said = REFUSED[name]
    with wire(roomy(start)) as client:
        for prompt in ({"prompt": "x"}, {"prompt_tokens": [5, 6]}):
            [error] = client.generate(name, **prompt, params=params)
            assert (error["type"], error["code"]) == ("error", "bad_request"), error
            assert error["message"].startswith(said), error["message"]
            assert len(error["message"]) < 500
        quick = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
        [*_, done] = client.generate("next", prompt_tokens=[5, 6], stream=False, params=quick)
        assert len(done["choices"][0]["tokens"]) == 4


@pytest.mark.parametrize("depth", [500, 1500, 100_000])
def test_a_schema_that_no_reader_follows(start: Start, depth: int) -> None:
    schema = '{"type":"array","items":' * depth + "{}" + "}" * depth
    frame = '{"type":"generate","id":"d","prompt":"x","params":{"guided_json":%s}}'
    with wire(roomy(start)) as client:
        client.send_raw(frame % schema)
        error = client.until("error")
        assert error["code"] == "bad_request"
        assert client.status()["requests"]["running"] == 0


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
            assert last["type"] == "done" or last["code"] == "invalid_logits", last
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


# --- the embedded model ---------------------------------------------------------------------------

MODEL = "smollm2-135m-instruct"
SLOTS = ("--max-num-seqs=16", "--max-model-len=1024")


@pytest.fixture(scope="module")
def small_model(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """(how much room there is, the address of a daemon)."""
    flags = [] if request.param == "roomy" else [f"--preemption-mode={request.param}"]
    flags += [] if request.param == "roomy" else ["--num-pages=48", "--num-host-pages=400"]
    with (
        tempfile.TemporaryDirectory(prefix="pagedd-") as home,
        daemon(Path(home), MODEL, *SLOTS, *flags) as url,
    ):
        yield request.param, url


def check_schemas(client: Client, seeds: range) -> int:
    """An answer at temperature 1 for each schema, valid and complete; the preemptions."""
    schemas = {f"s{seed}": random_schema(seed) for seed in seeds}
    streams = ask(
        client,
        {
            id: {
                "messages": [
                    {
                        "role": "user",
                        "content": f"Answer as JSON of this schema: {json.dumps(schema)}",
                    }
                ],
                "params": {"temperature": 1, "max_tokens": 500, **schema_of(schema)},
            }
            for id, schema in schemas.items()
        },
    )
    texts = set()
    for id, schema in schemas.items():
        [choice] = streams[id].choices
        assert choice["finish_reason"] == "stop", (id, choice["text"])
        jsonschema_rs.validator_for(schema).validate(json.loads(choice["text"]))
        texts.add(choice["text"])
    assert len(texts) > len(schemas) / 2
    return sum(stream.preemptions for stream in streams.values())


@pytest.mark.parametrize("small_model", ["swap"], indirect=True)
def test_answers_of_random_schemas_are_valid(small_model: tuple[str, str]) -> None:
    room, url = small_model
    with wire(url) as client:
        assert bool(check_schemas(client, range(1000, 1020))) == (room != "roomy")
        quiet(client)


@pytest.mark.slow
@pytest.mark.parametrize("small_model", ["roomy", "swap", "recompute"], indirect=True)
def test_answers_of_200_random_schemas_are_valid(small_model: tuple[str, str]) -> None:
    room, url = small_model
    with wire(url) as client:
        assert bool(check_schemas(client, range(200))) == (room != "roomy")
        quiet(client)
