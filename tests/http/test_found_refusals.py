"""Refusals that name what the client wrote, and values that only looked allowed."""

from __future__ import annotations

from typing import Any

import pytest

from pagedd.server.http.turn import Turn
from tests.http.edges import Served, dumps, post

USER = [{"role": "user", "content": "abc"}]


def tool(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def refused(served: Served, **body: Any) -> tuple[str | None, str]:
    got = post(served.http + "/v1/chat/completions", dumps({"messages": USER, **body}))
    assert got.status_code == 400, got.text
    error = got.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "bad_request")
    return error["param"], error["message"]


@pytest.mark.parametrize(
    ("schema", "strict", "said"),
    [
        ({"type": "object", "not": {}}, True, "Unimplemented keys"),
        ({"properties": {"a": {"type": "string", "pattern": "["}}}, False, "unclosed"),
        ({"properties": {"a": {"multipleOf": 999983}}}, False, "multipleOf 999983 is too much"),
        ({"properties": {"a": False}, "required": ["a"]}, False, "Unsatisfiable"),
    ],
)
def test_a_fault_of_a_tool_is_not_said_of_a_grammar(
    served: Served, schema: dict[str, Any], strict: bool, said: str
) -> None:
    tools = [tool(parameters=schema, strict=strict)]
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        for stream in (False, True):
            param, message = refused(served, tools=tools, tool_choice=choice, stream=stream)
            assert param == "tools"
            assert message.startswith("tools: ")
            assert said in message


def test_a_fault_of_a_grammar_is_said_of_it(served: Served) -> None:
    param, message = refused(served, guided_grammar="nothing", tools=[tool()])
    assert param == "guided_grammar"
    assert message.startswith("guided_grammar: ")


def test_two_forms_at_once_are_no_field_of_that_name(served: Served) -> None:
    param, message = refused(served, guided_regex="a", guided_choice=["a"])
    assert param is None
    assert message.startswith("give at most one of response_format and")


def test_a_name_has_no_line_break_at_its_end(served: Served) -> None:
    param, message = refused(served, tools=[tool("g"), tool("f\n")])
    assert param == "tools[1].function.name"
    assert "matching regex" in message
    counted = {"messages": USER, "tools": [tool("f\n")]}
    assert post(served.http + "/tokenize", dumps(counted)).status_code == 400
    form = {"type": "json_schema", "json_schema": {"name": "a\n", "schema": {}}}
    assert refused(served, response_format=form)[0] == "response_format.json_schema.name"


def test_tools_have_names_of_their_own(served: Served) -> None:
    tools = [tool("f"), tool("g"), tool("f", description="another")]
    for choice in ("none", "auto", "required"):
        param, message = refused(served, tools=tools, tool_choice=choice)
        assert param == "tools[2].function.name"
        assert "tools[0] has the name 'f' already" in message


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_call_goes_on_behind_white_space_however_it_is_cut(size: int) -> None:
    """What stands between the object and its closing mark is forgotten, but not the mark."""
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "b\\""}}'
    text = f"{call}{' ' * 50}</tool_call>\n{call} \n</tool_call> end"
    turn = Turn(calls=True, one_call=False)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    deltas = [delta for part in parts for delta in turn.deltas(part, ends=False)]
    deltas += turn.deltas("", ends=True)
    arguments = ["", ""]
    for delta in deltas:
        for part in delta.tool_calls or ():
            arguments[part.index] += part.function.arguments
    assert arguments == ['{"a": "b\\""}'] * 2
    assert "".join(delta.content for delta in deltas if isinstance(delta.content, str)) == " end"
