"""Bodies that are small to send and dear to serve: nobody else may wait for them (case B36)."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from pagedd.errors import BadRequest, ModelNotFound, PromptTooLong
from pagedd.protocol import Generate
from pagedd.server.edge import EdgeLimits, check_frame
from pagedd.server.http import chat as chat_module
from pagedd.server.http import completions
from pagedd.server.http.bodies import CompletionBody
from pagedd.server.http.gateway import Gateway
from pagedd.server.http.plain import MOST_CHARACTERS
from pagedd.server.http.reading import decode, read_into
from pagedd.server.refusal import INLINE_BYTES, takes_long
from pagedd.server.text_work import TextWork
from pagedd.text.guidance import MAX_GRAMMAR
from pagedd.text.stops import prepared
from tests.http.edges import Served, dumps, post

MIB = 1 << 20
COMPLETIONS = "/v1/completions"
USER = [{"role": "user", "content": "abc"}]
LIMITS = EdgeLimits(vocab_size=300, max_model_len=64, max_num_seqs=4)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class _Gateway:
    """What reading needs of one; no model is served."""

    body_limit = 1 << 24

    def __init__(self) -> None:
        self.hub = SimpleNamespace(text_work=TextWork(lambda: None))

    def admit(self, name: str | None) -> None:
        raise ModelNotFound(f"model: {name!r} is not served here")


def gateway() -> Gateway:
    return cast(Gateway, _Gateway())


def request(data: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def long(body: dict[str, Any]) -> bytes:
    """With so many brackets around it that it is read beside the event loop."""
    return dumps(body | {"guided_json": {"x": [[]] * INLINE_BYTES}})


@pytest.mark.anyio
@pytest.mark.parametrize("beside", [False, True])
async def test_what_a_long_body_becomes_is_made_beside_the_event_loop(beside: bool) -> None:
    data = long({"prompt": "x"}) if beside else dumps({"prompt": "x"})

    def make(body: CompletionBody) -> tuple[str, bool]:
        assert body.prompt == "x"
        return "made", threading.current_thread() is not threading.main_thread()

    assert await read_into(request(data), CompletionBody, gateway(), make) == ("made", beside)


def test_one_long_text_is_read_at_once() -> None:
    text = "word " * (2 * INLINE_BYTES // 5)
    assert not takes_long(json.dumps({"prompt": text}), json=True)
    assert takes_long(json.dumps({"prompt": text.replace(" ", ",")}), json=True)
    assert takes_long(json.dumps({"prompt": text * 9}), json=True)
    assert takes_long(b"\xa0" * (INLINE_BYTES + 1), json=False)
    assert not takes_long("[" * INLINE_BYTES, json=True)


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, INLINE_BYTES])
async def test_the_grammar_of_tools_is_written_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    threads: list[threading.Thread] = []

    def grammar(*_: Any, **__: Any) -> str:
        threads.append(threading.current_thread())
        return 'start: "x"'

    monkeypatch.setattr(chat_module, "tool_grammar", grammar)
    tools: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f"}}]
    tools[0]["function"] |= {"parameters": {"x": [[]] * size}}
    body = {"messages": USER, "tools": tools, "tool_choice": "required"}
    with pytest.raises(ModelNotFound):
        await chat_module.chat(gateway(), request(dumps(body)))
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("value", ["1,", "[],", '{"a":1},'])
def test_a_body_of_too_many_values_is_not_read(value: str) -> None:
    body = '{"prompt": "x", "guided_json": {"x": [' + value * 1_200_000 + "1]}}"
    with pytest.raises(BadRequest, match=r"^the body: its commas, and 4 times its brackets"):
        decode(body.encode(), CompletionBody)


def test_a_text_may_have_a_million_commas() -> None:
    text = "," * 1_000_000
    assert decode(dumps({"prompt": text}), CompletionBody).prompt == text


def test_too_many_values_over_the_websocket(daemon: Any) -> None:
    with daemon.client() as client:
        client.send_raw(
            '{"type": "generate", "id": "x", "prompt_tokens": [' + "1," * 1_200_000 + "1]}"
        )
        error = client.receive()
        assert (error["type"], error["code"]) == ("error", "bad_request")
        assert error["message"].startswith("the frame: its commas, and 4 times its brackets")


def test_a_long_websocket_frame_is_read_like_a_short_one(daemon: Any) -> None:
    with daemon.client() as client:
        for status in ({"type": "status", "ref": "a"}, {"type": "status", "ref": "b"}):
            client.send_raw(json.dumps(status).ljust(MIB + 1))
        client.send_raw('{"type": "status", "ref": "c"}')
        assert [client.receive()["ref"] for _ in range(3)] == ["a", "b", "c"]
        client.send_raw(json.dumps({"type": "status", "ref": 7}).ljust(MIB + 1))
        assert client.receive()["message"].startswith("ref: expected")


def test_ids_that_are_too_many_are_not_looked_at() -> None:
    with pytest.raises(PromptTooLong, match=r"^the prompt has 64 tokens"):
        check_frame(Generate("x", prompt_tokens=[999] * 64), LIMITS)
    with pytest.raises(BadRequest, match=r"id 999 is outside"):
        check_frame(Generate("x", prompt_tokens=[999] * 63), LIMITS)


@pytest.mark.parametrize(
    "costly",
    [
        {"stop": [f"{at:0>1000}" for at in range(60)]},
        {"logit_bias": {str(at): 0.123456789 for at in range(300)}, "stop": "x" * 1000},
        {"guided_json": {"enum": ["x" * 1000] * 20}},
    ],
)
def test_many_prompts_with_large_parameters_are_refused(
    served: Served, costly: dict[str, Any]
) -> None:
    """Each prompt is a request of its own, with all of them; a few are served."""
    got = post(served.http + COMPLETIONS, dumps({"prompt": ["a"] * 1024, **costly}))
    error = got.json()["error"]
    assert (got.status_code, error["param"]) == (400, "prompt"), error
    assert "1024 prompts, each with parameters of" in error["message"]
    if "guided_json" not in costly:
        few = post(
            served.http + COMPLETIONS, dumps({"prompt": ["a"] * 3, "max_tokens": 1, **costly})
        )
        assert len(few.json()["choices"]) == 3, few.text


def test_as_many_prompts_as_may_wait_are_served(served: Served) -> None:
    got = post(served.http + COMPLETIONS, dumps({"prompt": ["a"] * 60, "max_tokens": 1}))
    assert [each["index"] for each in got.json()["choices"]] == list(range(60))


def test_the_same_stop_strings_are_prepared_once() -> None:
    assert prepared(("abc", "b")) is prepared(("abc", "b"))
    assert prepared(("abc", "b")).stops == ("abc", "b")


def test_an_echo_has_a_limit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MAX_ECHO", 11)
    completions._check_echo(["abcdefg", "hijk"], 1)
    with pytest.raises(BadRequest, match=r"^echo: 2 times the prompts are 22 characters"):
        completions._check_echo(["abcdefg", "hijk"], 2)


def test_the_tools_are_named_when_they_make_too_long_a_grammar(served: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"const": "x" * (MAX_GRAMMAR // 2)}}}
    tools = [
        {"type": "function", "function": {"name": f"f{at}", "parameters": schema}}
        for at in range(3)
    ]
    body = {"messages": USER, "tools": tools, "tool_choice": "required"}
    error = post(served.http + "/v1/chat/completions", dumps(body)).json()["error"]
    assert error["param"] == "tools", error
    assert str(MAX_GRAMMAR) in error["message"]


def test_a_text_that_is_only_counted_has_a_limit(served: Served) -> None:
    """One word of any length would keep a thread busy for minutes."""
    got = post(served.http + "/tokenize", dumps({"prompt": "a" * (MOST_CHARACTERS + 1)}))
    assert (got.status_code, got.json()["error"]["param"]) == (400, "prompt")
    assert str(MOST_CHARACTERS) in got.json()["error"]["message"]
