"""The asynchronous client against a daemon, and against what is none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from pagedd.client import Client
from pagedd.errors import (
    BadRequest,
    DuplicateId,
    EngineFailed,
    PageddError,
    RequestNotFound,
    Unauthorized,
    Unreachable,
)
from pagedd.protocol import Delta, Done, Generate, Params, ServerFrame
from tests.engine.fake_engine import BLOCK, SLOW
from tests.server.harness import Daemon, Gate, until
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
        async for frame in client.generate(ask("a", max_tokens=250, seed=SLOW)):
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


async def test_what_is_raised_inside_comes_out_as_it_is(daemon: Daemon) -> None:
    with pytest.raises(BadRequest, match="top_p"):
        async with Client.connect(url(daemon)) as client:
            _ = [frame async for frame in client.generate(ask("a", top_p=0.0))]


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
        assert not client._inboxes.questions


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


async def test_questions_and_events_end_with_the_connection(start: Start, gate: Gate) -> None:
    daemon = start(engine={"block_gate": gate.path}, stall_s=0.3)
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
