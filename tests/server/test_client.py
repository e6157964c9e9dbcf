"""The asynchronous client against a daemon, and against what is none."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from pagedd.client import Client
from pagedd.errors import (
    BadRequest,
    DuplicateId,
    EngineFailed,
    PageddError,
    RequestNotFound,
    Unauthorized,
    Unreachable,
    UsageError,
)
from pagedd.protocol import Delta, Done, Generate, Ledger, Params, ServerFrame
from tests.engine.fake_engine import BLOCK
from tests.server.harness import Daemon, until
from tests.server.told import kinds

pytestmark = pytest.mark.anyio
Start = Callable[..., Daemon]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def url(daemon: Daemon) -> str:
    return f"unix:{daemon.settings.socket}"


def ask(id: str, prompt: str = "abc", **params: Any) -> Generate:
    return Generate(id=id, prompt=prompt, params=Params(**params))


def text_of(frames: list[ServerFrame]) -> str:
    return "".join(frame.text for frame in frames if isinstance(frame, Delta))


async def test_it_streams_over_either_address(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client:
        assert client.hello.model == "fake"
        frames = [frame async for frame in client.generate(ask("a", max_tokens=5, logprobs=1))]
        assert text_of(frames) == "abcab"
        assert isinstance(frames[-1], Done)
        status = await client.status()
    async with Client.connect(status.endpoints[1]) as client:
        frames = [frame async for frame in client.generate(ask("a", max_tokens=4))]
        assert text_of(frames) == "abca"


async def test_many_requests_share_a_connection(daemon: Daemon) -> None:
    texts: dict[str, str] = {}

    async def run(client: Client, id: str) -> None:
        frames = [frame async for frame in client.generate(ask(id, f"{id} ", max_tokens=12))]
        texts[id] = text_of(frames)

    async with Client.connect(url(daemon)) as client, anyio.create_task_group() as tasks:
        for at in range(20):
            tasks.start_soon(run, client, f"r{at}")
        statuses = [await client.status() for _ in range(3)]
    assert all(f"{id} " * 12 == text + (f"{id} " * 12)[len(text) :] for id, text in texts.items())
    assert len(texts) == 20
    assert {status.state for status in statuses} == {"ready"}


async def test_an_error_frame_is_raised_as_its_class(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client:
        with pytest.raises(BadRequest, match=r"stop_token_ids: id 300"):
            await anext(client.generate(ask("a", stop_token_ids=[300])))
        frames = [frame async for frame in client.generate(ask("a", max_tokens=1))]
        assert isinstance(frames[-1], Done)


async def test_cancel_and_leaving_early_end_the_request(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client:
        frames = []
        async for frame in client.generate(ask("a", max_tokens=250)):
            frames.append(frame)
            if len(frames) == 4:
                await client.cancel("a")
        assert isinstance(frames[-1], Done)
        assert frames[-1].choices[0].finish_reason == "cancelled"
        stream = client.generate(ask("b", max_tokens=250))
        await anext(stream)
        with pytest.raises(DuplicateId):
            await anext(client.generate(ask("b")))
        await stream.aclose()
        await client.cancel("b")
        again = [frame async for frame in client.generate(ask("b", max_tokens=2))]
        assert text_of(again) == "ab"
    daemon.until_quiet()


async def test_leaving_the_connection_cancels_what_is_open(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client:
        stream = client.generate(ask("a", max_tokens=250))
        await anext(stream)
    with suppress(PageddError):
        await stream.aclose()
    daemon.until_quiet()


async def test_a_dead_engine_and_a_dead_daemon_are_told_apart(start: Start) -> None:
    daemon = start(engine={"step_s": 0.02})
    async with Client.connect(url(daemon)) as client:
        stream = client.generate(ask("a", max_tokens=200))
        await anext(stream)
        os.kill((await client.status()).engine_pid, signal.SIGKILL)
        with pytest.raises(EngineFailed) as failed:
            _ = [frame async for frame in stream]
        assert failed.value.retryable
        assert failed.value.retry_after_ms
        daemon.until_state("ready")
        stream = client.generate(ask("a", max_tokens=200))
        await anext(stream)
        daemon.process.kill()
        with pytest.raises(Unreachable) as lost:
            _ = [frame async for frame in stream]
        assert lost.value.exit_code == 69
        with pytest.raises(Unreachable):
            await client.status()
        with pytest.raises(Unreachable):
            await anext(client.generate(ask("b")))
    daemon.end()
    with pytest.raises(Unreachable, match="pagedd start"):
        async with Client.connect(url(daemon)):
            pytest.fail("nobody is there")


async def test_keys(start: Start) -> None:
    daemon = start(api_keys=("secret",))
    endpoint = daemon.status()["endpoints"][1]
    for key in (None, "wrong"):
        with pytest.raises(Unauthorized):
            async with Client.connect(endpoint, key):
                pytest.fail("the key is wrong")
    async with Client.connect(endpoint, "secret") as client:
        assert (await client.status()).state == "ready"
    daemon.stop()


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("http://127.0.0.1:1", UsageError),
        ("nonsense", UsageError),
        ("unix:/nowhere/x.sock", Unreachable),
        ("ws://127.0.0.1:1", Unreachable),
    ],
)
async def test_addresses_where_nobody_is(address: str, error: type[PageddError]) -> None:
    with pytest.raises(error) as raised:
        async with Client.connect(address):
            pytest.fail("nobody is there")
    assert "\n" not in raised.value.message


async def test_what_is_no_websocket_is_unreachable() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"SSH-2.0-OpenSSH\r\n")

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(Unreachable):
            async with Client.connect(f"ws://127.0.0.1:{port}"):
                pytest.fail("this is no daemon")
        tasks.cancel_scope.cancel()


HELLO = {
    "type": "hello",
    "version": 1,
    "boot_id": "b",
    "model": "m",
    "max_model_len": 1,
    "page_size": 1,
    "num_pages": 1,
    "num_host_pages": 0,
    "limits": dict.fromkeys(
        ["max_frame", "max_queue", "max_num_seqs", "max_n", "max_logprobs", "vocab_size"], 1
    ),
    "features": [],
    "a_field_of_the_future": 1,
}


@asynccontextmanager
async def server(*frames: object) -> AsyncIterator[str]:
    """A server that says these frames, then for every frame that it gets a ``done``."""

    async def handle(connection: ServerConnection) -> None:
        for frame in frames:
            raw = frame if isinstance(frame, bytes) else msgspec.msgpack.encode(frame)
            await connection.send(raw)
        async for data in connection:
            asked = msgspec.msgpack.decode(data)
            await connection.send(msgspec.msgpack.encode({"type": "weather", "id": asked["id"]}))
            done = {"type": "done", "id": asked["id"], "choices": []}
            usage = {"prompt_tokens": 1, "completion_tokens": 0, "cached_tokens": 0}
            ledger = dict.fromkeys(LEDGER, 0)
            await connection.send(msgspec.msgpack.encode(done | {"usage": usage, "ledger": ledger}))

    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with serve(handle, sock=sock, select_subprotocol=lambda _, offered: offered[0]):
            yield f"ws://127.0.0.1:{sock.getsockname()[1]}"


LEDGER = Ledger.__struct_fields__


async def test_frames_of_the_future_are_ignored() -> None:
    async with server(HELLO) as address, Client.connect(address) as client:
        frames = [frame async for frame in client.generate(ask("a"))]
        assert [type(frame) for frame in frames] == [Done]


@pytest.mark.parametrize(
    ("first", "says"),
    [(HELLO | {"version": 2}, "version 2"), ({"type": "done"}, "no pagedd"), (7, "no pagedd")],
)
async def test_another_protocol_is_refused(first: object, says: str) -> None:
    async with server(first) as address:
        with pytest.raises(PageddError, match=says):
            async with Client.connect(address):
                pytest.fail("this is another protocol")


async def test_what_is_raised_inside_comes_out_as_it_is(daemon: Daemon) -> None:
    with pytest.raises(BadRequest, match="top_p"):
        async with Client.connect(url(daemon)) as client:
            _ = [frame async for frame in client.generate(ask("a", top_p=0.0))]


async def test_a_frame_that_is_none_ends_the_conversation() -> None:
    async with server(HELLO, b"\xc1") as address, Client.connect(address) as client:
        with pytest.raises(PageddError, match="no pagedd"):
            _ = [frame async for frame in client.generate(ask("a"))]


async def test_cancelling_what_has_ended_is_harmless(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client:
        await client.cancel("never was")
        assert (await client.status()).state == "ready"
    until(lambda: daemon.status()["connections"] == 1, "the session to end")


async def test_why_a_request_is_where_it_is(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client, Client.connect(url(daemon)) as other:
        _ = [frame async for frame in client.generate(ask("mine", max_tokens=3))]
        for asker in (client, other):
            explained = await asker.explain("mine")
            assert (explained.id, explained.state) == ("mine", "ended")
            assert kinds(explained) == ["accepted", "admitted", "finished"]
        handle = explained.reasons[0].handle
        assert (await other.explain(f"#{handle}")).reasons == explained.reasons
        with pytest.raises(RequestNotFound, match="'nobody'"):
            await client.explain("nobody")
        assert not client._questions


async def test_many_questions_at_once_get_their_own_answers(daemon: Daemon) -> None:
    answers: dict[int, str] = {}

    async def why(client: Client, at: int, id: str) -> None:
        try:
            answers[at] = (await client.explain(id)).id
        except RequestNotFound as error:
            answers[at] = error.message

    async with Client.connect(url(daemon)) as client:
        for id in "ab":
            _ = [frame async for frame in client.generate(ask(id, max_tokens=1))]
        async with anyio.create_task_group() as tasks:
            for at in range(30):
                tasks.start_soon(why, client, at, "ab?"[at % 3])
    assert [answers[at] for at in range(30) if at % 3 < 2] == ["a", "b"] * 10
    assert all("'?'" in answers[at] for at in range(2, 30, 3))


async def test_events_are_read_as_they_happen_and_again_from_history(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client, Client.connect(url(daemon)) as other:
        feed = client.events(history=1)
        first = await anext(feed)
        assert first.at > 0
        _ = [frame async for frame in other.generate(ask("watched", max_tokens=2))]
        seen = [await anext(feed) for _ in range(3)]
        assert [event.kind for event in seen] == ["accepted", "admitted", "finished"]
        assert {event.request for event in seen} == {"watched"}
        with pytest.raises(BadRequest, match="already"):
            await anext(client.events())
        await feed.aclose()
        again = client.events(history=3)
        assert [await anext(again) for _ in range(3)] == seen
        await again.aclose()
        for history in (-1, 4097):
            with pytest.raises(BadRequest, match=f"history: {history}"):
                await anext(client.events(history))


async def test_another_priority_or_the_reason_why_not(start: Start) -> None:
    daemon = start(engine={"step_s": 0.01, "max_num_seqs": 1})
    async with Client.connect(url(daemon)) as client:
        busy = client.generate(ask("busy", max_tokens=200))
        await anext(busy)
        await client.reprioritize("busy", 7)
        feed = client.events(history=4096)
        while (changed := await anext(feed)).kind != "reprioritized":
            assert changed.request == "busy"
        assert (changed.before, changed.priority) == (0, 7)
        assert changed.request == "busy"
        with pytest.raises(RequestNotFound):
            await client.reprioritize("nobody", 1)
        with pytest.raises(BadRequest, match="priority"):
            await client.reprioritize("busy", 2**40)
        await client.reprioritize("busy", 8)
        await feed.aclose()
        await busy.aclose()
    daemon.stop()


async def test_questions_and_events_end_with_the_connection(start: Start) -> None:
    daemon = start(engine={"block_s": 30.0}, stall_s=0.3)
    async with Client.connect(url(daemon)) as client:
        _ = [frame async for frame in client.generate(ask("before", max_tokens=1))]
        feed = client.events(history=1)
        assert (await anext(feed)).kind == "finished"
        ends: list[str] = []

        async def stick() -> None:
            with pytest.raises(Unreachable):
                await anext(client.generate(ask("stuck", seed=BLOCK)))
            ends.append("request")

        async def why() -> None:
            with pytest.raises(Unreachable):
                await client.explain("stuck")
            ends.append("question")

        async def watch() -> None:
            with pytest.raises(Unreachable):
                await anext(feed)
            ends.append("feed")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stick)
            await anyio.to_thread.run_sync(daemon.until_state, "stalled")
            tasks.start_soon(why)
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            assert not ends, "the engine hangs, and cannot have answered"
            daemon.process.kill()
        assert sorted(ends) == ["feed", "question", "request"]
        with pytest.raises(Unreachable):
            await anext(client.events())
    daemon.end()
