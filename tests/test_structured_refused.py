"""Forms that no answer can have, or that would cost too much, are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.random_schemas import Schema, schema_of
from tests.real_daemon import wire
from tests.tiny_daemons import Start, roomy, start

__all__ = ["start"]  # the fixture


def nested(depth: int) -> Schema:
    schema: Schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


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
    "regex-explodes": (
        {"guided_regex": "((a{1,100}){1,100}){1,100}"},
        "params.guided_regex: it is too complex to be followed: ",
    ),
    "choices": ({"guided_choice": []}, "params.guided_choice: "),
    "empty-choice": ({"guided_choice": [""]}, "params.guided_choice[0]: "),
    "grammar": ({"guided_grammar": "start: nowhere"}, "params.guided_grammar: unknown name"),
    "grammar-deep": (
        {"guided_grammar": "start: " + "(" * 3000 + '"a"' + ")" * 3000},
        "params.guided_grammar: ",
    ),
    "grammar-nothing": (
        {"guided_grammar": "start: start"},
        "params.guided_grammar: the grammar cannot be used: ",
    ),
    "grammar-token": (
        {"guided_grammar": "start: <|none|>"},
        "params.guided_grammar: the grammar cannot be used: unknown",
    ),
    "attribute": ({"guided_grammar": "start: a\na[temperature=1]: /x/"}, "params.guided_grammar: "),
    "operators": (
        {"guided_grammar": "start: A\nA: /a/ & /b/"},
        "params.guided_grammar: the operators",
    ),
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
