"""Requests that clients give the same name, and names that are none (case B39)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.http.edges import Served, ask, events
from tests.http.raw import Response, connect, exchange, request, response
from tests.server.harness import Client, Daemon, until

STREAMS = 4


@pytest.fixture(scope="module")
def slow(start_for_module: Callable[..., Daemon]) -> Daemon:
    return start_for_module(engine={"step_s": 0.005}, http="127.0.0.1:0")


@pytest.fixture
def served(slow: Daemon) -> Iterator[Served]:
    yield Served.of(slow)
    slow.until_quiet()


def named(name: str | bytes, prompt: str = "abc", **fields: Any) -> bytes:
    """A request for a completion under a name."""
    body = json.dumps({"prompt": prompt, "max_tokens": 60, **fields}).encode()
    field = name if isinstance(name, bytes) else name.encode()
    whole = request("/v1/completions", body, "X-Request-Id: @")
    return whole.replace(b"X-Request-Id: @", b"X-Request-Id: " + field)


def text_of(got: Response) -> str:
    chunks = events(got.body.decode())
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


def test_b39_the_same_name_at_once(served: Served) -> None:
    """Over HTTP each has its own connection: both run, and no text gets into the other."""
    prompts = [f"{at}{at + 1}" for at in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        sent = [named("same", prompt, stream=True) for prompt in prompts]
        answers = list(pool.map(lambda data: exchange(served, data), sent))
    for prompt, got in zip(prompts, answers, strict=True):
        assert text_of(got) == prompt * 30
        assert {chunk["id"] for chunk in events(got.body.decode())} == {"cmpl-same"}


def test_b39_the_same_name_at_once_on_one_websocket(slow: Daemon) -> None:
    with slow.client() as client:
        for prompt in ("ab", "cd"):
            client.send(type="generate", id="same", prompt=prompt, params={"max_tokens": 60})
        texts, refused = "", None
        while True:
            frame = client.receive()
            if frame["type"] == "error":
                refused = frame
            texts += frame.get("text", "")
            if frame["type"] == "done":
                break
        assert refused is not None
        assert (refused["code"], refused["ref"], "id" in refused) == ("duplicate_id", "same", False)
        assert texts == "ab" * 30
    slow.until_quiet()


def test_b39_a_name_again_after_its_end(served: Served) -> None:
    with connect(served) as sock:
        for prompt in ("ab", "cd", "ef"):
            sock.sendall(named("again", prompt, max_tokens=4))
            answer = json.loads(response(sock).body)
            assert answer["id"] == "cmpl-again"
            assert answer["choices"][0]["text"] == prompt * 2


def test_b39_a_name_again_while_the_last_one_is_given_up(served: Served) -> None:
    for at in range(20):
        with connect(served) as sock:
            sock.sendall(named("again", "ab", max_tokens=200, stream=at % 2 == 0))
        got = exchange(served, named("again", "cd", max_tokens=4))
        assert json.loads(got.body)["choices"][0]["text"] == "cdcd"


def test_b39_a_cancel_is_of_its_own_connection(slow: Daemon, served: Served) -> None:
    """No name of HTTP can be cancelled by that name; the handle names any request."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(slow.client()) for _ in range(2))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        over_http = [
            pool.submit(exchange, served, named("same", "xy", stream=stream, max_tokens=200))
            for stream in (True, False)
        ]
        for client in (one, two):
            client.send(type="generate", id="cmpl-same", prompt="ab", params={"max_tokens": 200})
            client.until("delta")
        one.send(type="cancel", id="cmpl-same")
        assert one.rest("cmpl-same")[-1]["choices"][0]["finish_reason"] == "cancelled"
        one.send(type="cancel", id="cmpl-same")
        assert one.until("error")["code"] == "request_not_found"
        assert text_of(over_http[0].result()) == "xy" * 100
        assert json.loads(over_http[1].result().body)["choices"][0]["text"] == "xy" * 100
        assert two.rest("cmpl-same")[-1]["choices"][0]["finish_reason"] == "length"


def handles(client: Client) -> list[str]:
    """Of the requests that the journal has seen, the newest last."""
    client.send(type="subscribe", topic="events", history=200)
    client.send(type="status", ref="now")
    found = []
    while (frame := client.receive())["type"] != "status":
        if frame["type"] == "event" and frame["kind"] == "accepted":
            found.append(f"#{frame['handle']}")
    client.send(type="unsubscribe", topic="events")
    return found


@pytest.mark.parametrize("stream", [True, False])
def test_b39_somebody_else_ends_it_by_its_handle(
    slow: Daemon, served: Served, stream: bool
) -> None:
    with ThreadPoolExecutor(1) as pool, slow.client() as other:
        sent = pool.submit(exchange, served, named("mine", stream=stream, max_tokens=250))
        until(lambda: other.status()["requests"]["running"], "it to run")
        other.send(type="cancel", id=handles(other)[-1])
        got = sent.result()
    if stream:
        *_, last = events(got.body.decode())
        assert last["error"]["code"] == "cancelled"
    else:
        assert (got.status, got.error["code"]) == (409, "cancelled")


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b" ",
        b"x" * 65,
        b"x" * 10_000,
        b"x" * (1 << 20),
        b"a\x01b",
        b"a\0b",
        b"a\x1b[31m",
        b"\x85",
    ],
    ids=lambda name: repr(name[:8]),
)
def test_b39_names_that_are_none(served: Served, name: bytes) -> None:
    with connect(served) as sock:
        with suppress(ConnectionError):  # refused while it was still being sent
            sock.sendall(named(name))
        got = response(sock)
    assert got.status == 400
    assert len(got.body) < 400, "it is not repeated"
    assert ask("http", served, "ok", max_tokens=4).text == "okok"


def test_b39_a_newline_in_a_name_is_another_field(served: Served) -> None:
    got = exchange(served, named("a\r\nX-Other: b", max_tokens=2))
    assert json.loads(got.body)["id"] == "cmpl-a"
    assert "x-other" not in got.headers


@pytest.mark.parametrize("name", ["x" * 64, "a b/c?d", "#17", "grüße".encode("latin-1")])
def test_b39_names_that_are_fine(served: Served, name: str | bytes) -> None:
    got = exchange(served, named(name, max_tokens=2))
    said = name if isinstance(name, str) else name.decode("latin-1")
    assert json.loads(got.body)["id"] == f"cmpl-{said}"


def test_b39_a_body_brings_no_name(served: Served, edge: str) -> None:
    answer = ask(edge, served, "abc", request_id="x" * 1_000_000)
    assert (answer.status, "request_id" in answer.message) == (400, True)
    assert len(answer.message) < 400
