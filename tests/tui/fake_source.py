"""A source that gives what a test puts in, a clock that a test sets, and a dashboard on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from pagedd.errors import PageddError, RequestNotFound
from pagedd.protocol import (
    Counters,
    Event,
    Explanation,
    Hello,
    HostPageCounts,
    Limits,
    PageCells,
    PageCounts,
    PreemptionCounts,
    PrefixCounts,
    RequestCounts,
    SequenceRow,
    State,
    Status,
    TokenCounts,
)
from pagedd_tui.app import Dashboard
from pagedd_tui.palette import Palette, choose
from pagedd_tui.source import Item

BASE = 1_000_000.0  # the daemon's clock is not the dashboard's
PLAIN = choose(None, ascii=False, no_color=False)


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeSource:
    """What is put in comes out; what is asked and commanded is written down."""

    def __init__(self, *, can_command: bool = True, title: str = "live") -> None:
        self.title, self.can_command = title, can_command
        self.explanations: dict[int, Explanation] = {}
        self.cancelled: list[int] = []
        self.priorities: list[tuple[int, int]] = []
        self.refusal: PageddError | None = None
        self.asked: list[int] = []
        self._items: asyncio.Queue[Item] = asyncio.Queue()

    def put(self, *items: Item) -> None:
        for item in items:
            self._items.put_nowait(item)

    @property
    def pending(self) -> int:
        return self._items.qsize()

    async def items(self) -> AsyncIterator[Item]:
        while True:
            yield await self._items.get()

    async def explain(self, handle: int) -> Explanation:
        self.asked.append(handle)
        if handle not in self.explanations:
            raise RequestNotFound(f"no request #{handle} is open")
        return self.explanations[handle]

    async def cancel(self, handle: int) -> None:
        self._refuse()
        self.cancelled.append(handle)

    async def reprioritize(self, handle: int, priority: int) -> None:
        self._refuse()
        self.priorities.append((handle, priority))

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal


class Bench:
    """A running dashboard and everything around it."""

    def __init__(self, app: Dashboard, source: FakeSource, clock: Clock, pilot: Pilot[Any]) -> None:
        self.app, self.source, self.clock, self.pilot = app, source, clock, pilot

    async def put(self, *items: Item) -> None:
        """Give these to the dashboard, and let it draw."""
        self.source.put(*items)
        await self.settle()

    async def settle(self, seconds: float = 1.0) -> None:
        """Time passes, and everything that is due is drawn."""
        while self.source.pending:
            await asyncio.sleep(0)
        for _ in range(3):  # what is asked in the first is answered in the second
            self.clock.now += seconds / 3
            self.app.painter.stir()
            self.app.tick()
            await self.pilot.pause(0)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle(0.3)

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        await self.settle(0.3)

    def screen(self) -> list[str]:
        """What is on the terminal."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    def brightness(self, text: str) -> int:
        """Of the first place where ``text`` is written, 0 to 765."""
        for strip in self.app.screen._compositor.render_strips():
            for segment in strip:
                color = segment.style and segment.style.color
                if text in segment.text and color and color.triplet:
                    return sum(color.triplet)
        raise AssertionError(f"{text} is not on the screen in a colour")

    def text(self) -> str:
        return "\n".join(self.screen())


@asynccontextmanager
async def dashboard(
    *items: Item,
    size: tuple[int, int] = (120, 40),
    source: FakeSource | None = None,
    palette: Palette = PLAIN,
    **more: Any,
) -> AsyncIterator[Bench]:
    """A dashboard that has been given ``items``."""
    source = source or FakeSource()
    clock = Clock()
    app = Dashboard(source, palette=palette, clock=clock, map_hz=0.001, **more)
    async with app.run_test(size=size) as pilot:
        bench = Bench(app, source, clock, pilot)
        await bench.put(*items)
        yield bench


def row(handle: int, state: str = "decoding", **more: Any) -> SequenceRow:
    """A request; what is not said is as for any."""
    fields: dict[str, Any] = {
        "handle": handle,
        "id": f"r{handle}",
        "index": 0,
        "state": state,
        "priority": 0,
        "prompt_tokens": 128,
        "generated": 54,
        "computed": 182,
        "pages": 2,
        "cached_tokens": 32,
        "waiting_ms": 0.0,
    }
    return SequenceRow(**{**fields, **more})


def counters(**more: Any) -> Counters:
    fields: dict[str, Any] = {
        "num_requests_running": 12,
        "num_requests_waiting": 5,
        "num_requests_swapped": 2,
        "gpu_cache_usage": 0.78,
        "host_cache_usage": 0.25,
        "prefix_hit_rate": 0.4,
        "tokens_per_second": 412.0,
        "preemptions_total": 3,
        "step_ms": {"execute": 20.0, "plan": 1.0},
    }
    return Counters(**{**fields, **more})


def keyframe(
    frame: int,
    cells: Sequence[int],
    rows: Iterable[SequenceRow] = (),
    *,
    owners: Sequence[int] | None = None,
    host: Sequence[int] = (),
    at: float | None = None,
    **more: Any,
) -> State:
    return State(
        frame=frame,
        at=BASE + frame * 0.1 if at is None else at,
        key=True,
        pages=PageCells(bytes(cells), n=len(cells)),
        host_pages=PageCells(bytes(host), n=len(host)),
        owners=list(owners or [0] * len(cells)),
        sequences=list(rows),
        gone=[],
        counters=counters(**more),
    )


def change(
    frame: int,
    cells: Mapping[int, int],
    rows: Iterable[SequenceRow] = (),
    *,
    gone: Sequence[int] = (),
    at: float | None = None,
    **more: Any,
) -> State:
    return State(
        frame=frame,
        at=BASE + frame * 0.1 if at is None else at,
        key=False,
        pages=PageCells(bytes(cells.values()), ids=list(cells)),
        host_pages=PageCells(b"", ids=[]),
        owners=[0] * len(cells),
        sequences=list(rows),
        gone=list(gone),
        counters=counters(**more),
    )


def hello(boot_id: str = "boot-1", model: str = "smollm2-135m-instruct") -> Hello:
    limits = Limits(1 << 24, 512, 24, 16, 20, 49152)
    return Hello(1, boot_id, model, 8192, 16, 64, 16, limits, [])


def event(kind: str, text: str, handle: int | None = None, at: float = BASE, **more: Any) -> Event:
    about = {} if handle is None else {"handle": handle, "request": f"r{handle}"}
    return Event(at=at, kind=kind, text=text, **about, **more)


def status(**more: Any) -> Status:
    fields: dict[str, Any] = {
        "version": "0.1.0",
        "boot_id": "boot-1",
        "state": "ready",
        "pid": 1,
        "engine_pid": 2,
        "uptime_s": 7200.0,
        "model": "smollm2-135m-instruct",
        "device": "cpu",
        "dtype": "float32",
        "page_size": 16,
        "max_model_len": 8192,
        "requests": RequestCounts(12, 5, 2, 0, 0, 0),
        "pages": PageCounts(64, 64, 0, 0, 0),
        "host_pages": HostPageCounts(16, 16, 0, 0),
        "preemptions": PreemptionCounts(0, 0),
        "recomputed_tokens": 0,
        "swapped_bytes": 0,
        "prefix": PrefixCounts(0, 0),
        "tokens": TokenCounts(0, 0, 0.0),
        "step_ms": {},
        "connections": 1,
        "endpoints": [],
    }
    return Status(**{**fields, **more})


# A picture with everything: r1 runs with most pages, r2 and r3 share, r4 waits, r5 is swapped.
ROWS = (
    row(1, pages=30, generated=100),
    row(2, pages=4),
    row(3, pages=4, index=1),
    row(4, "waiting", pages=0, generated=0, waiting_ms=1200.0, cached_tokens=0),
    row(5, "swapped", pages=5, waiting_ms=300.0, priority=2),
)
CELLS = [1] * 30 + [2] * 4 + [3] * 10 + [0] * 20
OWNERS = [1] * 30 + [2] * 4 + [0] * 30
PICTURE = keyframe(1, CELLS, ROWS, owners=OWNERS, host=[1] * 5 + [3] * 3 + [0] * 8)
START: tuple[Item, ...] = (hello(), status(), PICTURE)
WHY = "r4 (#4) waits for pages: it needs 8, 2 are free, 6 short; most are held by r1 (#1) with 30."
