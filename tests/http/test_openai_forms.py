"""Tools and structured output through the official ``openai`` package, with the embedded model.

The model is small: what it calls and says is of no worth, but what it writes has the form.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pydantic
import pytest

from pagedd.models.catalog import DEFAULT_MODEL
from tests.http.edges import Served
from tests.real_daemon import daemon

QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Paris and in Rome?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "enum": ["Paris", "Rome"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
}
TOOLS = [WEATHER, TIME]


class City(pydantic.BaseModel):
    name: Literal["Paris", "Rome"]
    inhabitants: int
    in_europe: bool


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    """Of a daemon that serves the embedded model."""
    with tempfile.TemporaryDirectory(prefix="pagedd-") as home:
        flags = ("--http=127.0.0.1:0", "--kv-cache-memory=256MiB")
        with daemon(Path(home), DEFAULT_MODEL, *flags) as address:
            url = f"{Served.at(address).http}/v1"
            with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
                yield client


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    """A chat's answer, greedy unless told otherwise."""
    fields = {"messages": QUESTION, "temperature": 0, "max_tokens": 120, **fields}
    return client.chat.completions.create(model=DEFAULT_MODEL, **fields)


def check_call(call: Any) -> str:
    """A call keeps to the schema of its function; the name."""
    assert call.type == "function"
    assert call.id
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert arguments.keys() == {"city", "days"}
        assert arguments["city"] in ("Paris", "Rome")
        assert 1 <= arguments["days"] <= 9
    else:
        assert call.function.name == "get_time"
    return str(call.function.name)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_call_that_is_required_comes(client: openai.OpenAI, seed: int | None) -> None:
    temperature = 0 if seed is None else 1
    answer = chat(
        client, tools=TOOLS, tool_choice="required", seed=seed, temperature=temperature, n=2
    )
    for choice in answer.choices:
        if choice.finish_reason == "length":
            continue  # some texts of a hot model have no end
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        assert len({call.id for call in choice.message.tool_calls}) >= 1
        for call in choice.message.tool_calls:
            check_call(call)


def test_a_named_function_is_called_and_no_other(client: openai.OpenAI) -> None:
    for tool in TOOLS:
        name = tool["function"]["name"]
        chosen = {"type": "function", "function": {"name": name}}
        answer = chat(client, tools=TOOLS, tool_choice=chosen, parallel_tool_calls=False)
        (choice,) = answer.choices
        (call,) = choice.message.tool_calls
        assert check_call(call) == name
        assert choice.finish_reason in ("tool_calls", "stop")


def test_a_streamed_call_is_the_same(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
    }
    (whole,) = chat(client, **fields).choices[0].message.tool_calls
    pieces = []
    for chunk in chat(client, stream=True, **fields):
        for choice in chunk.choices:
            assert not choice.delta.content
            pieces += choice.delta.tool_calls or []
    first, *rest = pieces
    assert (first.index, first.type, first.function.name) == (0, "function", "get_weather")
    assert first.id
    assert not any(piece.id or piece.function.name for piece in rest)
    assert "".join(piece.function.arguments for piece in pieces) == whole.function.arguments
    assert len(rest) > 1, "it came in pieces"


def test_a_call_and_its_result_go_back(client: openai.OpenAI) -> None:
    chosen = {"type": "function", "function": {"name": "get_weather"}}
    made = chat(client, tools=TOOLS, tool_choice=chosen, parallel_tool_calls=False).choices[0]
    (call,) = made.message.tool_calls
    history = [
        *QUESTION,
        made.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "It rains."},
    ]
    answer = chat(client, messages=history, tools=TOOLS, tool_choice="none", max_tokens=16)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def test_without_a_must_the_model_may_talk(client: openai.OpenAI) -> None:
    answer = chat(client, tools=TOOLS, tool_choice="auto", max_tokens=24)
    (choice,) = answer.choices
    for call in choice.message.tool_calls or []:
        json.loads(call.function.arguments)
    assert choice.message.content or choice.message.tool_calls


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"type": "no such type"}},
                }
            },
            "response_format",
        ),
        ({"extra_body": {"guided_regex": "("}}, "guided_regex"),
        ({"extra_body": {"guided_regex": "a", "guided_choice": ["b"]}}, None),
    ],
)
def test_forms_that_cannot_be_kept_are_refused(
    client: openai.OpenAI, fields: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, **fields)
    if param:
        assert str(refused.value.param).startswith(param)


def test_parse_gives_a_model_of_pydantic(client: openai.OpenAI) -> None:
    for temperature in (0, 1):
        answer = client.chat.completions.parse(
            model=DEFAULT_MODEL,
            messages=[{"role": "user", "content": "Tell me about a big city."}],
            response_format=City,
            temperature=temperature,
            seed=5,
            max_tokens=200,
        )
        city = answer.choices[0].message.parsed
        assert isinstance(city, City)


def test_a_stream_is_parsed_at_its_end(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=DEFAULT_MODEL,
        messages=[{"role": "user", "content": "Tell me about a big city."}],
        response_format=City,
        temperature=0,
        max_tokens=200,
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done", "chunk"} <= kinds
    assert isinstance(final.choices[0].message.parsed, City)


def test_json_objects(client: openai.OpenAI) -> None:
    answer = chat(
        client,
        messages=[{"role": "user", "content": 'Say {"a": 1} as JSON, and nothing else.'}],
        response_format={"type": "json_object"},
        max_tokens=200,
        stop=["}"],
        extra_body={"include_stop_str_in_output": True},
    )
    text = answer.choices[0].message.content
    assert text.lstrip().startswith("{")
    assert text.rstrip().endswith("}")


def test_choices_and_expressions(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"temperature": 1, "seed": 3, "n": 4}
    chosen = chat(client, **fields, extra_body={"guided_choice": ["yes", "no", "perhaps"]})
    assert {choice.message.content for choice in chosen.choices} <= {"yes", "no", "perhaps"}
    dated = chat(client, **fields, extra_body={"guided_regex": r"\d{4}-\d\d-\d\d"})
    for choice in dated.choices:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", choice.message.content)
        assert choice.finish_reason == "stop"
    completed = client.completions.create(
        model=DEFAULT_MODEL,
        prompt="The number is",
        max_tokens=20,
        extra_body={"guided_regex": r" [0-9]{3}"},
    )
    assert re.fullmatch(r" [0-9]{3}", completed.choices[0].text)
