"""Answers of a form from the embedded model: valid for whatever schema, also after preemptions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from pagedd.protocol import FunctionTool, Tool
from pagedd.text.tool_calls import Argued, Called, ToolCalls
from pagedd.text.tool_grammar import tool_grammar
from tests.random_schemas import random_schema, schema_of
from tests.real_daemon import ask, daemon, quiet, wire
from tests.server.harness import Client

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


# They grow for as long as answers do, and others make room for them: 50 pages of 48.
GREEDY = {
    f"greedy{i}": {
        "prompt": f"{i}",
        "priority": -1,
        "params": {"max_tokens": 300, "temperature": 0, "ignore_eos": True},
    }
    for i in range(5)
}


def check_schemas(client: Client, seeds: range, *, room: str) -> int:
    """An answer at temperature 1 for each schema, valid and complete; the preemptions of these."""
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
        }
        | ({} if room == "roomy" else GREEDY),
    )
    texts = set()
    for id, schema in schemas.items():
        [choice] = streams[id].choices
        assert choice["finish_reason"] == "stop", (id, choice["text"])
        jsonschema_rs.validator_for(schema).validate(json.loads(choice["text"]))
        texts.add(choice["text"])
    assert len(texts) > len(schemas) / 2
    return sum(streams[id].preemptions for id in schemas)


@pytest.mark.parametrize("small_model", ["swap"], indirect=True)
def test_answers_of_random_schemas_are_valid(small_model: tuple[str, str]) -> None:
    room, url = small_model
    with wire(url) as client:
        assert bool(check_schemas(client, range(1000, 1020), room=room)) == (room != "roomy")
        quiet(client)


@pytest.mark.parametrize("small_model", ["swap"], indirect=True)
def test_calls_that_must_come(small_model: tuple[str, str]) -> None:
    city: dict[str, Any] = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tools = [Tool(FunctionTool("weather", parameters=city)), Tool(FunctionTool("now"))]
    with wire(small_model[1]) as client:
        for only, parallel in ((None, False), ("weather", True)):
            grammar = tool_grammar(tools, only, parallel=parallel)
            [*_, done] = client.generate(
                "call",
                messages=[{"role": "user", "content": "How is the weather in Paris?"}],
                tools=[msgspec.to_builtins(tool) for tool in tools],
                params={"max_tokens": 80, "guided_grammar": grammar},
                stream=False,
            )
            [choice] = done["choices"]
            assert choice["finish_reason"] == "stop"
            reader = ToolCalls()
            called, *argued = [*reader.push(choice["text"]), *reader.finish()]
            assert isinstance(called, Called)
            assert called.name in ("weather", "now") if only is None else called.name == only
            text = "".join(each.text for each in argued if isinstance(each, Argued))
            assert set(json.loads(text)) == ({"city"} if called.name == "weather" else set())


@pytest.mark.slow
@pytest.mark.parametrize("small_model", ["roomy", "swap", "recompute"], indirect=True)
def test_answers_of_200_random_schemas_are_valid(small_model: tuple[str, str]) -> None:
    room, url = small_model
    with wire(url) as client:
        assert bool(check_schemas(client, range(200), room=room)) == (room != "roomy")
        quiet(client)
