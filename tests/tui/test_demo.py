"""The simulated engine: the real scheduler, with everything that a dashboard can show."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from pagedd.errors import RequestNotFound
from pagedd.protocol import SHARED, SWAPPED, Event, Hello, State, Status
from pagedd_tui.demo import DemoSource
from pagedd_tui.demo_load import MOST
from pagedd_tui.model import Model
from pagedd_tui.source import Item
from tests.tui.paced import Sleeper

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Shown:
    """A demo that was watched for some simulated seconds."""

    source: DemoSource
    sleeper: Sleeper
    model: Model = field(default_factory=Model)
    items: list[Item] = field(default_factory=list)

    async def watch(self, seconds: float) -> None:
        until = self.sleeper.time + seconds
        async with aclosing(self.source.items()) as items:
            async for item in items:
                self.items.append(item)
                if isinstance(item, State):
                    assert self.model.follows(item)
                    self.model.take(item)
                    if self.sleeper.time >= until:
                        return

    @property
    def events(self) -> list[Event]:
        return [item for item in self.items if isinstance(item, Event)]


async def shown(seconds: float, seed: int = 1) -> Shown:
    sleeper = Sleeper()
    demo = Shown(DemoSource(seed, sleeper.pace), sleeper)
    await demo.watch(seconds)
    return demo


async def test_all_that_there_is_to_see_happens_within_a_minute() -> None:
    demo = await shown(60)
    kinds = Counter(event.kind for event in demo.events)
    assert kinds.keys() >= {
        "accepted", "admitted", "waiting", "preempted", "resumed", "evicted", "finished",
    }  # fmt: skip
    preempted = [event for event in demo.events if event.kind == "preempted"]
    assert {event.mode for event in preempted} == {"swap", "recompute"}
    states, choices, priorities, most, shared, swapped = set(), set(), set(), 0, 0, 0
    model = Model()
    for item in demo.items:
        if isinstance(item, State):
            model.take(item)
            states |= {row.state for row in model.rows.values()}
            choices |= {row.index for row in model.rows.values()}
            priorities |= {row.priority for row in model.rows.values()}
            most = max(most, len({handle for handle, _ in model.rows}))
            shared = max(shared, model.pages.counts[SHARED])
            swapped = max(swapped, model.host.counts[SWAPPED])
    assert states == {"waiting", "prefilling", "decoding", "swapped", "preempted"}
    assert choices == {0, 1, 2, 3}
    assert min(priorities) < 0 < max(priorities)
    assert 30 < most <= MOST
    assert shared > 20
    assert swapped > 20


async def test_items_come_as_from_a_daemon() -> None:
    demo = await shown(70)
    first, second, *_ = demo.items
    assert isinstance(first, Hello)
    assert isinstance(second, State)
    assert (second.key, second.frame) == (True, 1)
    frames = [item for item in demo.items if isinstance(item, State)]
    assert sum(frame.key for frame in frames) == 3
    statuses = [item for item in demo.items if isinstance(item, Status)]
    assert len(statuses) in (70, 71)
    assert demo.sleeper.naps[:3] == pytest.approx([0.05] * 3)
    assert all(event.text.endswith(".") and "\n" not in event.text for event in demo.events)


async def test_the_frames_are_the_picture_of_the_scheduler() -> None:
    demo = await shown(30)
    scheduler = demo.source._simulation.scheduler
    scheduler.audit()
    snapshot = scheduler.snapshot()
    assert bytes(demo.model.pages.states) == snapshot.cells
    keys = [None, *((row.handle, row.choice) for row in snapshot.sequences)]
    assert demo.model.pages.owners == [keys[owner] for owner in snapshot.owners]
    assert sorted(demo.model.rows) == keys[1:]
    pages = snapshot.counters.pages
    assert demo.model.pages.counts == [pages.free, pages.owned, pages.shared, pages.cached]
    host = snapshot.counters.host_pages
    assert demo.model.host.counts == [host.free, host.swapped, 0, host.cached]


async def test_the_same_seed_tells_the_same_story() -> None:
    one, same, other = await shown(20), await shown(20), await shown(20, seed=2)
    assert one.model.keyframe() == same.model.keyframe() != other.model.keyframe()
    assert [event.text for event in one.events] == [event.text for event in same.events]


async def test_explanations_have_tables_and_text() -> None:
    demo = await shown(30)
    for handle, index in demo.model.rows:
        if index:
            continue
        told = await demo.source.explain(handle)
        assert told.id == f"#{handle}"
        assert told.state in {row.state for row in demo.model.rows.values()}
        assert told.reasons[0].kind == "accepted"
        assert told.reasons[-1].kind in ("running", "waiting")
        assert isinstance(told.tables, list)
        assert isinstance(told.text, list)
        for table, text in zip(told.tables, told.text, strict=True):
            row = demo.model.rows[handle, table.index]
            assert row.pages == (len(table.pages) or len(table.host))
            assert len(table.refs) == len(table.pages)
            for page, refs in zip(table.pages, table.refs, strict=True):
                assert (refs > 1) == (demo.model.pages.states[page] == SHARED)
            assert bool(text) == (row.generated > 0)


async def test_what_has_ended_is_remembered_for_a_while() -> None:
    demo = await shown(30)
    ended = next(event.handle for event in demo.events if event.kind == "finished")
    assert isinstance(ended, int)
    told = await demo.source.explain(ended)
    assert (told.state, told.reasons[-1].kind) == ("ended", "finished")
    with pytest.raises(RequestNotFound, match="#4711"):
        await demo.source.explain(4711)


async def test_commands_act_on_the_scheduler() -> None:
    demo = await shown(30)
    handles = sorted({handle for handle, _ in demo.model.rows})
    await demo.source.cancel(handles[0])
    await demo.source.reprioritize(handles[-1], -7)
    with pytest.raises(RequestNotFound):
        await demo.source.cancel(handles[0])
    with pytest.raises(RequestNotFound):
        await demo.source.reprioritize(4711, 1)
    await demo.watch(0.2)
    assert all(handle != handles[0] for handle, _ in demo.model.rows)
    assert demo.model.rows[handles[-1], 0].priority == -7
    texts = [event.text for event in demo.events if event.handle in (handles[0], handles[-1])]
    assert any("was cancelled" in text for text in texts)
    assert any("to -7" in text for text in texts)


WITHOUT = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "tokenizers"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Hidden())
import anyio
from pagedd.protocol import Event
from pagedd_tui.demo import DemoSource

async def main():
    items = DemoSource().items()
    async for item in items:
        if isinstance(item, Event):
            print(item.kind)
            break
    await items.aclose()

anyio.run(main)
print([name for name in ("torch", "textual", "numpy", "pagedd.server") if name in sys.modules])
"""


def test_it_needs_neither_torch_nor_textual() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[:2] == ["accepted", "[]"]
