"""A client that takes nothing in for a while."""

from __future__ import annotations

import anyio
import pytest

from pagedd.client import Client
from pagedd.protocol import Event, Generate, Params
from tests.server.harness import PATIENCE_S, Daemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def url(daemon: Daemon) -> str:
    return f"unix:{daemon.settings.socket}"


async def test_what_came_while_it_rested_is_there_with_the_next_answer(daemon: Daemon) -> None:
    seen: list[Event] = []

    async def follow(client: Client) -> None:
        async for event in client.events():
            seen.append(event)  # noqa: PERF401 -- each as it comes

    async with (
        Client.connect(url(daemon)) as resting,
        Client.connect(url(daemon)) as other,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(follow, resting)
        for _ in range(2):  # the feed is asked for while the first answer is waited for
            await resting.status()
        for id in ("a", "b"):
            resting.rest()
            before = len(seen)
            frame = Generate(id=id, prompt="abc", params=Params(max_tokens=2))
            _ = [each async for each in other.generate(frame)]
            await other.status()
            assert len(seen) == before
            await resting.status()
            with anyio.fail_after(PATIENCE_S):
                while len(seen) < before + 3:
                    await anyio.sleep(0.01)
            assert [each.kind for each in seen[before:]] == ["accepted", "admitted", "finished"]
        tasks.cancel_scope.cancel()


async def test_a_client_that_rests_says_farewell_all_the_same(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client:
        socket = client._socket
        client.rest()
    assert socket.close_code == 1000
