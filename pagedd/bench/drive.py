"""Send a load over one connection and note when everything comes back."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pagedd import protocol
from pagedd.bench.load import Item, Workload
from pagedd.errors import Unreachable

SILENCE_S = 300.0  # nothing at all for so long: the run is given up


class Piece(NamedTuple):
    """What a server of another kind sent of an answer. It does not say how many tokens it is."""

    id: str


class End(NamedTuple):
    """The end of such an answer. Counts in tokens; None: the server does not tell."""

    id: str
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None


class Wire(Protocol):
    """What is needed of a connection."""

    def send(self, frame: protocol.ClientFrame) -> None:
        """Send one frame."""

    def receive(self, timeout: float | None = None) -> protocol.ServerFrame | Piece | End | None:
        """The next frame, or None after ``timeout`` seconds."""


@dataclass(slots=True)
class Trace:
    """One request, in seconds of the monotonic clock. ``gaps``: between tokens, one per token.

    ``index`` is its place among the items, ``asked`` the length of the answer that it asked for;
    ``seen`` counts the tokens that came as such, and ``answer`` holds their ids where the server
    tells them.
    """

    index: int
    asked: int
    sent: float
    first: float | None = None
    last: float = 0.0
    ended: float | None = None
    tokens: int = 0
    seen: int = 0
    gaps: list[float] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    ledger: protocol.Ledger | None = None
    error: str | None = None


@dataclass(slots=True)
class Run:
    """What was seen: a trace per request. ``client_s``: processor time that sending and reading
    took on this side, in seconds."""

    traces: list[Trace]
    began: float
    ended: float
    input_tokens: int
    cached_tokens: int
    client_s: float


@dataclass(slots=True)
class DaemonRun(Run):
    """A run against a daemon of pagedd: also its status, now and then."""

    before: protocol.Status
    after: protocol.Status
    statuses: list[protocol.Status]


class Driver:
    """One run over one connection; a frame is handled as soon as it is there.

    ``status_every``: seconds between two looks at the status; None where there is none.
    """

    def __init__(
        self,
        wire: Wire,
        items: Sequence[Item],
        load: Workload,
        progress: Callable[[float, str], None],
        clock: Callable[[], float] = time.monotonic,
        status_every: float | None = 0.5,
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
        self._asked = 0  # statuses that are to come

    def run(self) -> Run:
        """Send everything and wait for every end. Errors: those of the connection;
        ``Unreachable`` when the other side falls silent."""
        todo = deque(enumerate(self._items))
        began = heard = self._clock()
        next_status = began if self._status_every is not None else math.inf
        used = time.process_time()
        while todo or self._open or self._asked:
            now = self._clock()
            if not self._open and not self._asked:
                heard = now
            while todo and self._may_send(todo[0][1], now - began):
                index, item = todo.popleft()
                self._send(index, item)
            if self._status_every is not None and (todo or self._open) and now >= next_status:
                self._wire.send(protocol.StatusRequest())
                self._asked += 1
                next_status = now + self._status_every
            until = min(next_status, heard + SILENCE_S)
            if todo and self._load.request_rate is not None:
                until = min(until, began + todo[0][1].at)
            frame = self._wire.receive(max(until - now, 0.001))
            if frame is not None:
                heard = self._clock()
                self._take(frame, heard)
            elif self._clock() - heard > SILENCE_S:
                raise Unreachable(f"nothing came for {SILENCE_S:.0f} s")
        used = time.process_time() - used
        ended = max((t.ended for t in self._traces if t.ended is not None), default=began)
        return Run(self._traces, began, ended, self._input_tokens, self._cached_tokens, used)

    def watched(self, before: protocol.Status, after: Callable[[], protocol.Status]) -> DaemonRun:
        """The same against a daemon, of which ``after`` asks the status at the end."""
        run = self.run()
        return DaemonRun(
            run.traces,
            run.began,
            run.ended,
            run.input_tokens,
            run.cached_tokens,
            run.client_s,
            before,
            after(),
            self._statuses,
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
        name = str(index)
        if item.text is None:
            frame = protocol.Generate(name, prompt_tokens=item.prompt, params=params)
        else:
            frame = protocol.Generate(name, prompt=item.text, params=params)
        trace = Trace(index, item.output_len, self._clock())
        self._traces.append(trace)
        self._open[name] = trace
        self._wire.send(frame)

    def _take(self, frame: protocol.ServerFrame | Piece | End, now: float) -> None:
        match frame:
            case Piece(id=name):
                _note_tokens(self._open[name], 1, now)
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
            case End(id=name):
                trace = self._open.pop(name)
                counted = frame.completion_tokens
                trace.ended, trace.tokens = now, trace.seen if counted is None else counted
                self._input_tokens += frame.prompt_tokens or 0
                self._cached_tokens += frame.cached_tokens or 0
                self._count()
            case protocol.Error(id=str(name), message=message):
                self._open.pop(name).error = message
                self._count()
            case protocol.Status():
                self._statuses.append(frame)
                self._asked -= 1
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
    trace.seen += count
    if trace.first is None:
        trace.first = now
        count -= 1
        trace.gaps += [0.0] * count
    else:
        trace.gaps += [(now - trace.last) / count] * count
    trace.last = now
