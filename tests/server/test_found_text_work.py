"""Work with text beside the event loop: how much at once, and what becomes of it at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.from_thread
import pytest

from pagedd.errors import ShuttingDown
from pagedd.server.text_work import THREADS, Kind, TextWork
from tests.server.harness import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Held:
    """Work that begins, and ends when it is let."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = threading.Event()

    def __call__(self) -> str:
        anyio.from_thread.run_sync(self.begun.set)
        assert self.go.wait(PATIENCE_S)
        return "done"


@pytest.fixture
def held() -> Iterator[list[Held]]:
    """As many as run at once, and one that waits for its turn."""
    all_ = [Held() for _ in range(THREADS + 1)]
    yield all_
    for each in all_:
        each.go.set()


def working() -> TextWork:
    return TextWork(lambda: None)


async def outcome(texts: TextWork, work: Any, into: list[Any]) -> None:
    try:
        into.append(await texts.run(work))
    except ShuttingDown as error:
        into.append(error)


async def test_it_gives_what_the_work_gives_and_raises_what_it_raises() -> None:
    texts = working()
    assert await texts.run(lambda: threading.current_thread()) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await texts.run(lambda: 1 // 0)
    assert texts.idle


async def test_the_end_waits_for_nobody(held: list[Held]) -> None:
    """What runs and what waits for a thread alike: each is told, once."""
    texts = working()
    outcomes: list[Any] = []
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for each in held:
                tasks.start_soon(outcome, texts, each, outcomes)
            for each in held[:THREADS]:
                await each.begun.wait()
            assert not texts.idle
            texts.end()
    assert [type(each) for each in outcomes] == [ShuttingDown] * len(held)
    assert not held[-1].begun.is_set()
    assert texts.idle


async def test_a_caller_that_leaves_frees_no_thread_that_works(held: list[Held]) -> None:
    """Else clients that leave would have as many threads as they like."""
    texts = working()
    outcomes: list[Any] = []
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as leaving:
                for each in held[:THREADS]:
                    leaving.start_soon(outcome, texts, each, outcomes)
                for each in held[:THREADS]:
                    await each.begun.wait()
                leaving.cancel_scope.cancel()
                tasks.start_soon(outcome, texts, held[-1], outcomes)
                with anyio.CancelScope(shield=True):
                    await anyio.wait_all_tasks_blocked()
                    assert not held[-1].begun.is_set()
                    for each in held:
                        each.go.set()
            await held[-1].begun.wait()
    assert outcomes[-1] == "done"


async def test_it_says_when_it_is_idle(held: list[Held]) -> None:
    idle: list[bool] = []
    texts = TextWork(lambda: idle.append(texts.idle))
    held[0].go.set()
    assert await texts.run(held[0]) == "done"
    assert idle == [True]


@pytest.mark.parametrize("kind", ["frame", "count"])
async def test_no_kind_of_work_waits_for_another(held: list[Held], kind: Kind) -> None:
    texts = working()
    outcomes: list[Any] = []
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for each in held[:THREADS]:
                tasks.start_soon(outcome, texts, each, outcomes)
            for each in held[:THREADS]:
                await each.begun.wait()
            assert await texts.run(lambda: "done", kind) == "done"
            assert outcomes == []
            for each in held:
                each.go.set()
