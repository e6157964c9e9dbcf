"""The dashboard's source at a real daemon, which comes, works, dies and comes again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from pagedd.client import Client
from pagedd.protocol import Event, Generate, Hello, Params, State, Status
from pagedd_tui.live import LiveSource
from pagedd_tui.model import Model
from pagedd_tui.source import Item, Lost
from tests.server.harness import PATIENCE_S, Daemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def until(
    items: AsyncIterator[Item], model: Model, *kinds: type[Item]
) -> dict[type[Item], Item]:
    """The first item of each kind, when there is one of each of ``kinds``; frames are folded."""
    seen: dict[type[Item], Item] = {}
    async for item in items:
        seen.setdefault(type(item), item)
        if isinstance(item, State):
            model.take(item)
        if seen.keys() >= set(kinds):
            break
    return seen


async def test_a_daemon_that_dies_and_comes_again(
    start: Callable[..., Daemon], folders: Callable[[], Path]
) -> None:
    folder = folders()
    boots: list[str] = []
    daemon = start(folder)
    url = f"unix:{daemon.settings.socket}"
    source = LiveSource(url, hz=30.0, random=lambda: 0.0)
    with anyio.fail_after(3 * PATIENCE_S):
        async with aclosing(source.items()) as items:
            for round in range(2):
                if round:
                    daemon = await anyio.to_thread.run_sync(start, folder)
                model = Model()
                seen = await until(items, model, Hello, State, Status)
                hello, frame, status = seen[Hello], seen[State], seen[Status]
                assert isinstance(hello, Hello)
                assert isinstance(frame, State)
                assert isinstance(status, Status)
                assert frame.key
                # no sizes were known yet if the second daemon was still loading
                assert {hello.num_pages, status.pages.total} <= {0, len(frame.pages.cells)}
                boots.append(hello.boot_id)
                async with Client.connect(url) as client:
                    asked = Generate(id="r", prompt="abc", params=Params(max_tokens=4))
                    _ = [each async for each in client.generate(asked)]
                ended = False
                while not ended or model.rows:
                    item = await anext(items)
                    if isinstance(item, State):
                        model.take(item)
                    ended |= isinstance(item, Event) and item.kind == "finished"
                assert not model.rows
                daemon.process.kill()
                daemon.end()
                gone = (await until(items, model, Lost))[Lost]
                assert isinstance(gone, Lost)
                assert gone.retry_s == 0.5
    assert len(set(boots)) == 2
