"""Forms of answers as grammars, and what of them is refused; without a daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from pagedd.errors import BadRequest
from pagedd.protocol import FunctionTool, Params, Tool
from pagedd.server import structure
from pagedd.server.structure import check_combination, check_grammar, grammar_of, has_grammar
from pagedd.text.guidance import plainer
from pagedd.text.tool_grammar import tool_grammar

# A discriminated union, a recursive tree, optional and nullable parts: as programs write schemas.
USUAL: dict[str, Any] = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "title": "C"},
            },
            "required": ["children"],
            "title": "Node",
        },
        "Cat": {
            "type": "object",
            "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 0}},
            "required": ["kind"],
        },
        "Dog": {
            "type": "object",
            "properties": {
                "kind": {"const": "dog"},
                "price": {"type": "number", "multipleOf": 0.01},
            },
            "required": ["kind", "price"],
        },
    },
    "type": "object",
    "properties": {
        "tree": {"$ref": "#/$defs/Node"},
        "pet": {"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
        "when": {"type": "string", "format": "date-time", "description": "a time"},
    },
    "required": ["tree", "pet"],
    "$schema": "https://json-schema.org/draft/2020-12/schema",
}


def params(**fields: Any) -> Params:
    return msgspec.convert(fields, Params)


def check(given: Params) -> None:
    check_combination(given)
    check_grammar(given)


def refusal(**fields: Any) -> str:
    given = params(**fields)
    with pytest.raises(BadRequest) as error:
        check(given)
    return error.value.message


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}])
def test_no_form(fields: dict[str, Any]) -> None:
    given = params(**fields, min_tokens=3, ignore_eos=True)
    check_combination(given)
    check_grammar(given)
    assert not has_grammar(given)
    assert grammar_of(given) is None


def test_what_programs_write_is_taken() -> None:
    wrapped = {"name": "a-b_C", "schema": USUAL, "strict": True, "description": "it"}
    every: list[dict[str, Any]] = [
        {"guided_json": USUAL},
        {"response_format": {"type": "json_schema", "json_schema": wrapped}},
        {"response_format": {"type": "json_object"}},
        {"guided_json": {}},
    ]
    for fields in every:
        check_combination(params(**fields))
        check_grammar(params(**fields))
        assert has_grammar(params(**fields))


def test_references_in_a_union_are_written_out() -> None:
    """Those to what refers back to the union too; data that looks like one is left alone."""
    data = {"oneOf": [{"$ref": "#/$defs/A"}], "uniqueItems": False}
    schema = {
        "$defs": {
            "A": {"type": "array", "items": {"$ref": "#"}, "uniqueItems": False},
            "B": {"const": data},
        },
        "oneOf": [{"$ref": "#/$defs/A", "title": "a"}, {"$ref": "#/$defs/B"}, {"type": "null"}],
    }
    before = json.dumps(schema)
    plain = plainer(schema)
    assert plain["oneOf"] == [
        {"type": "array", "items": {"$ref": "#"}, "title": "a"},
        {"const": data},
        {"type": "null"},
    ]
    assert plain["$defs"]["B"] == {"const": data}
    assert json.dumps(schema) == before
    check_grammar(Params(guided_json=schema))


@pytest.mark.parametrize("reference", ["#/$defs/none", "#/x/0/y", "#", "http://x/y", 7])
def test_references_to_nowhere_stay(reference: Any) -> None:
    union = {"oneOf": [{"$ref": reference}, 5, {"type": "null"}], "x": [1]}
    assert plainer(union) == union


def test_a_union_of_itself_is_refused() -> None:
    circle = {"$defs": {"A": {"oneOf": [{"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"}
    assert refusal(guided_json=circle)


def test_properties_may_be_named_like_keywords() -> None:
    schema = {"properties": {"uniqueItems": False, "oneOf": {"type": "null"}, "const": {}}}
    assert plainer(schema) == schema


def test_text_may_come_beside_another_form() -> None:
    check_combination(params(response_format={"type": "text"}, guided_regex="a"))


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_object", "json_schema": {"name": "x", "schema": {}}}},
    ],
)
def test_a_schema_comes_with_its_type(fields: dict[str, Any]) -> None:
    assert refusal(**fields).startswith("params.response_format.json_schema: ")


@pytest.mark.parametrize("key", ['"multipleOf"', '"multiple\\u004ff"', '"\\u006dultipleOf" '])
@pytest.mark.parametrize("number", ["99999989", "9.9999989", "99999989e3", "99999989.0"])
def test_remainders_are_limited_however_they_are_written(key: str, number: str) -> None:
    text = f'start: %json {{"type": "number", {key}: {number}}}'
    assert refusal(guided_grammar=text).startswith("params.guided_grammar: multipleOf")
    assert refusal(guided_json=json.loads(text.removeprefix("start: %json ")))


@pytest.mark.parametrize("number", [0.01, 5, 1000, 1e-6, 10**9, 9999])
def test_usual_steps_are_taken(number: float) -> None:
    check_grammar(params(guided_json={"type": "number", "multipleOf": number}))


def test_what_is_too_long_is_refused_before_it_is_read() -> None:
    choices = ["x" * 1000] * 200
    message = refusal(guided_choice=choices)
    assert message.startswith("params.guided_choice: as a grammar it has ")
    assert "the limit is 131072" in message


@pytest.mark.parametrize(
    "text",
    [
        "start: A\nA: /a/ & /b/",
        "start: A\nA: ~/a/",
        'start: A\nA: /x\n"/ & ~/y"/',
        'start: A // "\nA: /a/ & /b/ // "',
        'start: "\\"" A\nA: "b"&~A',
    ],
)
def test_operators_without_a_limit_are_refused(text: str) -> None:
    assert "the operators & and ~" in refusal(guided_grammar=text)


@pytest.mark.parametrize(
    "text",
    [
        'start: "a & b" A~2..3 // this & that\nA: /[&~"]/',
        'start: %json {"const": "~ & \\" ~"} # no ~',
        'start: "temperature" a\na: "x[stop=1]"',
    ],
)
def test_what_only_looks_like_them_is_taken(text: str) -> None:
    check(params(guided_grammar=text))


def test_the_last_word_on_forcing_is_ours() -> None:
    grammar = grammar_of(params(guided_grammar='%llguidance {"no_forcing": false}\nstart: "a"'))
    assert grammar is not None
    assert grammar.strip().endswith('%llguidance {"no_forcing": true}')


def test_a_fault_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"guided_regex": "never seen before ("}
    first = refusal(**fields)
    before = structure._fault.cache_info().misses
    assert refusal(**fields) == first
    assert structure._fault.cache_info().misses == before


SEARCH = FunctionTool(
    "search",
    parameters={"type": "object", "properties": {"q": {"type": "string", "not": {"const": ""}}}},
)


def test_calls_of_tools_are_lenient_unless_strict() -> None:
    check_grammar(Params(guided_grammar=tool_grammar([Tool(SEARCH)], None)))
    strict = msgspec.structs.replace(SEARCH, strict=True)
    with pytest.raises(BadRequest, match="not"):
        check_grammar(Params(guided_grammar=tool_grammar([Tool(strict)], None)))


def test_a_call_needs_a_function() -> None:
    with pytest.raises(BadRequest, match="nothing to call"):
        tool_grammar([Tool(SEARCH)], "other")


def test_the_library_is_loaded_when_it_is_needed() -> None:
    code = (
        "import sys, pagedd.daemon, pagedd.server.session; from pagedd.protocol import Params; "
        "from pagedd.server.structure import check_grammar; check_grammar(Params()); "
        "assert 'llguidance' not in sys.modules; check_grammar(Params(guided_regex='a')); "
        "assert 'llguidance' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
