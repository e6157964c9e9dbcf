"""Send a load over one connection and note when everything comes back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pagedd import protocol
from pagedd.bench.load import Item, Workload
from pagedd.errors import Unreachable

SILENCE_S = 300.0  # nothing at all for so long: the run is given up


class Wire(Protocol):
    """What is needed of a connection."""

    def send(self, frame: protocol.ClientFrame) -> None:
        """Send one frame."""

    def receive(self, timeout: float | None = None) -> protocol.ServerFrame | None:
        """The next frame, or None after ``timeout`` seconds."""


@dataclass(slots=True)
class Trace:
    """One request, in seconds of the monotonic clock. ``gaps``: between tokens, one per token.

    ``index`` is its place among the items; ``answer`` holds the ids that came.
    """

    index: int
    sent: float
    first: float | None = None
    last: float = 0.0
    ended: float | None = None
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    ledger: protocol.Ledger | None = None
    error: str | None = None


@dataclass(slots=True)
class Run:
    """What was seen: a trace per request, and the status now and then."""

    traces: list[Trace]
    began: float
    ended: float
    before: protocol.Status
    after: protocol.Status
    statuses: list[protocol.Status]
    input_tokens: int
    cached_tokens: int


class Driver:
    """One run over one connection; a frame is handled as soon as it is there."""

    def __init__(
        self,
        wire: Wire,
        items: Sequence[Item],
        load: Workload,
        progress: Callable[[float, str], None],
        clock: Callable[[], float] = time.monotonic,
        status_every: float = 0.5,
    ) -> None:
        self._wire = wire
        self._items = items
        self._load = load
        self._progress = progress
        self._clock = clock
        self._status_every = status_every
        self._open: dict[str, Trace] = {}
        self._traces: list[Trace] = []
        self._statuses: list[protocol.Status] = []
        self._input_tokens = 0
        self._cached_tokens = 0
        self._ended = 0

    def run(self, before: protocol.Status, after: Callable[[], protocol.Status]) -> Run:
        """Send everything and wait for every end. Errors: those of the connection;
        ``Unreachable`` when the daemon falls silent."""
        todo = deque(enumerate(self._items))
        began = next_status = heard = self._clock()
        while todo or self._open:
            now = self._clock()
            while todo and self._may_send(todo[0][1], now - began):
                index, item = todo.popleft()
                self._send(index, item)
            if now >= next_status:
                self._wire.send(protocol.StatusRequest())
                next_status = now + self._status_every
            until = next_status
            if todo and self._load.request_rate is not None:
                until = min(until, began + todo[0][1].at)
            frame = self._wire.receive(max(until - now, 0.001))
            if frame is not None:
                heard = self._clock()
                self._take(frame, heard)
            elif self._clock() - heard > SILENCE_S:
                raise Unreachable(f"nothing came from the daemon for {SILENCE_S:.0f} s")
        ended = max((t.ended for t in self._traces if t.ended is not None), default=began)
        return Run(
            self._traces,
            began,
            ended,
            before,
            after(),
            self._statuses,
            self._input_tokens,
            self._cached_tokens,
        )

    def _may_send(self, item: Item, elapsed: float) -> bool:
        if self._load.concurrency is not None:
            return len(self._open) < self._load.concurrency
        return elapsed >= item.at

    def _send(self, index: int, item: Item) -> None:
        params = protocol.Params(
            max_tokens=item.output_len,
            ignore_eos=True,
            temperature=self._load.temperature,
            seed=self._load.seed + index,
        )
        trace = Trace(index, self._clock())
        self._traces.append(trace)
        self._open[str(index)] = trace
        self._wire.send(protocol.Generate(str(index), prompt_tokens=item.prompt, params=params))

    def _take(self, frame: protocol.ServerFrame, now: float) -> None:
        match frame:
            case protocol.Delta(id=name, tokens=tokens):
                trace = self._open[name]
                trace.answer += tokens
                _note_tokens(trace, len(tokens), now)
            case protocol.Done(id=name, usage=usage, ledger=ledger):
                trace = self._open.pop(name)
                trace.ended, trace.tokens, trace.ledger = now, usage.completion_tokens, ledger
                self._input_tokens += usage.prompt_tokens
                self._cached_tokens += usage.cached_tokens
                self._count()
            case protocol.Error(id=str(name), message=message):
                self._open.pop(name).error = message
                self._count()
            case protocol.Status():
                self._statuses.append(frame)
            case _:
                pass

    def _count(self) -> None:
        self._ended += 1
        total = len(self._items)
        self._progress(self._ended / total, f"{self._ended} of {total} requests")


def _note_tokens(trace: Trace, count: int, now: float) -> None:
    """A frame may hold several tokens: its gap is spread over them."""
    if not count:
        return
    if trace.first is None:
        trace.first = now
        count -= 1
        trace.gaps += [0.0] * count
    else:
        trace.gaps += [(now - trace.last) / count] * count
    trace.last = now
