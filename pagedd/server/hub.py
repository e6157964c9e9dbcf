"""The middle of the daemon: connections on one side, the engine on the other.

Owns the tables of the open requests and the journal of what happened. Everything here runs in the
event loop and does not wait; tokenising runs in worker threads (``session.py``).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace

import anyio
import anyio.to_thread

from pagedd.core.events import StepEvents
from pagedd.core.wording import counted
from pagedd.engine.messages import (
    CancelRequest,
    Command,
    EndChoice,
    Ready,
    Reprioritize,
    Step,
    Submit,
    Watch,
)
from pagedd.errors import EngineFailed, PageddError, QueueFull, ShuttingDown
from pagedd.protocol import Hello
from pagedd.server.deadlines import Deadlines
from pagedd.server.directory import Directory
from pagedd.server.ends import EndCount, Ends
from pagedd.server.feed import EventFeed
from pagedd.server.greeting import hello_of
from pagedd.server.held import Held
from pagedd.server.inquiries import Inquiries
from pagedd.server.journal import Journal
from pagedd.server.metrics import Metrics
from pagedd.server.model import EngineGate, Model
from pagedd.server.replies import failure
from pagedd.server.requests import OpenRequest, Preparing
from pagedd.server.state_feed import StateFeed
from pagedd.server.status import StatusBoard
from pagedd.server.telling import tell
from pagedd.server.text_work import TextWork
from pagedd.text.tokenizer import TextModel

logger = logging.getLogger(__name__)


class Hub:
    """Implements the supervisor's EngineOwner. ``on_ready`` is called for every new engine."""

    def __init__(
        self,
        *,
        boot_id: str,
        model_name: str,
        max_queue: int,
        board: StatusBoard,
        metrics: Metrics,
        on_loading: Callable[[str, float], None],
        on_ready: Callable[[Ready], None],
        request_timeout: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.boot_id = boot_id
        self.board = board
        self.metrics = metrics
        self.directory = Directory()
        self.journal = Journal()
        self.feed = EventFeed(self.journal, clock)
        self.state_feed = StateFeed(self.journal.name_of, board.counters, self._watch, clock)
        self.held = Held()
        self.inquiries = Inquiries(self.directory, self.journal, self.held, self._send, clock)
        self.model: Model | None = None
        self.text_work = TextWork(self._look_for_quiet)
        self.draining = False
        self.deadlines = Deadlines(request_timeout, self._expire)
        count = EndCount(board, metrics.requests)
        self.ends = Ends(self.directory, self.journal, self.held, self.deadlines, count, clock)
        self._max_queue = max_queue
        self._model_name = model_name
        self._on_loading = on_loading
        self._on_ready = on_ready
        self._gate: EngineGate | None = None
        self._clock = clock  # seconds since 1970
        self._handles = itertools.count(1)
        self._connections = itertools.count(1)
        self._quiet = anyio.Event()

    def connect_engine(self, gate: EngineGate) -> None:
        """Where commands go; once, before anything is served."""
        self._gate = gate

    # --- for sessions ---------------------------------------------------------------------------

    def hello(self) -> Hello:
        """The first frame of a connection; sizes are 0 until the engine is ready."""
        return hello_of(self.model, self.boot_id, self._model_name, self._max_queue)

    def admit(self) -> Model:
        """May a request come now? Raises ShuttingDown, EngineFailed or QueueFull."""
        if self.draining:
            raise ShuttingDown("the daemon is shutting down and takes no new requests")
        assert self._gate is not None
        if self.model is None or not self._gate.serves:
            raise EngineFailed(self._gate.refusal())
        preparing = len(self.directory.preparing)
        if preparing >= self._max_queue:
            self.metrics.requests.queue_full += 1
            busy = counted(preparing, "request", do="are", does="is")
            raise QueueFull(f"{busy} being tokenised (max_queue)")
        return self.model

    def next_connection(self) -> int:
        """A number for a connection, never used before."""
        return next(self._connections)

    def begin_preparing(self, request: Preparing) -> None:
        """A request is on its way to ``submit`` through a worker thread."""
        self.directory.preparing[request.handle] = request
        self.deadlines.arm(request.handle, request.arrived, request.frame.timeout_s)

    def end_preparing(self, request: Preparing) -> None:
        """It has been submitted, refused or cancelled."""
        del self.directory.preparing[request.handle]
        if request.handle not in self.directory.requests:
            self.deadlines.disarm(request.handle)
        if request.withdrawn:
            self.ends.count.cancelled()
        self._look_for_quiet()

    def next_handle(self) -> int:
        """A name for the engine, never used before."""
        return next(self._handles)

    def submit(self, request: OpenRequest) -> None:
        """Hand a request to the engine. Raises ShuttingDown."""
        if self.draining:
            raise ShuttingDown("the daemon is shutting down and takes no new requests")
        try:
            self._send(Submit(request.core))
        except EngineFailed:  # there was one when the request came: see ``admit``
            self.held.add(request)
        self.directory.requests[request.handle] = request
        self.metrics.requests.began(request)
        self.journal.know(request.handle, request.who)
        self.deadlines.arm(request.handle, request.arrived, request.timeout_s)

    def cancel(self, request: OpenRequest) -> None:
        """The client does not want it any more; it ends when the engine says so."""
        if request.handle in self.held:
            self.ends.cancelled(request)
            self._look_for_quiet()
        else:
            request.cancelling = True
            self._send_if_alive(CancelRequest(request.handle))

    def reprioritize(self, request: OpenRequest, priority: int) -> None:
        """Another priority, from the next step on; the events tell when."""
        request.core = replace(request.core, priority=priority)
        self._send_if_alive(Reprioritize(request.handle, priority))

    def abandon(self, request: OpenRequest) -> None:
        """Nobody will read the rest: forget it at once."""
        held = request.handle in self.held
        if self.ends.forget(request.handle) is not None:
            if held:
                self.ends.count.cancelled(request.handle)
            self._send_if_alive(CancelRequest(request.handle))
            self._look_for_quiet()

    # --- for the daemon -------------------------------------------------------------------------

    async def drained(self) -> None:
        """Wait until no request is open. Only while ``draining``."""
        self._look_for_quiet()
        await self._quiet.wait()

    def fail_all(self, error: PageddError) -> None:
        """End every open request with an error, and every question; nothing is begun any more."""
        self.text_work.end()
        self.ends.lose(list(self.directory.requests.values()), error)
        self.inquiries.fail_all(error)
        self.feed.publish()
        self._look_for_quiet()

    # --- for the supervisor ---------------------------------------------------------------------

    def has_work(self) -> bool:
        """Is a request open that the engine must answer?"""
        return bool(self.directory.requests or self.ends.expired) or self.board.busy

    def engine_loading(self, phase: str, fraction: float) -> None:
        """Progress of the load."""
        self._on_loading(phase, fraction)

    async def engine_ready(self, ready: Ready) -> None:
        """A new engine: load the tokenizer if it is another, then take requests."""
        text = self.model.text if self.model is not None else None
        if text is None or self.model is None or self.model.ready.text_dir != ready.text_dir:
            text = await anyio.to_thread.run_sync(TextModel.load, ready.text_dir)
        self.model = Model(ready, text)
        self.board.engine_ready(ready)
        self.metrics.engine_ready()
        self._on_ready(ready)

    def engine_serves(self) -> None:
        """The new one gets what was held, and who looks on wants to see it."""
        self._submit_again(self.held.release())
        self.state_feed.engine_serves()

    def engine_lost(self, reason: str) -> None:
        """What had begun is lost, and its clients may try again; the rest waits for another."""
        self.state_feed.engine_lost()
        requests, error = self.directory.requests, EngineFailed(f"the engine failed: {reason}")
        losses = self.held.take(list(requests.values()))
        self.board.engine_lost(len(losses.lost))
        self.ends.lose(losses.lost, error)
        for request in losses.cancelled:
            self.ends.cancelled(request)
        self.ends.count.engine_lost(requests)
        self.metrics.steps.engine_lost()
        self.inquiries.fail_all(error)
        self.journal.forget_all()
        self.ends.expired.clear()
        for handle in self.held.handles:
            self.journal.know(handle, requests[handle].who)
        self.feed.publish()
        self._look_for_quiet()

    def engine_step(self, step: Step) -> None:
        """Carry a step's events to their requests, in the order of its lists."""
        self.board.step(step)
        self.metrics.step(step)
        events, now = step.events, self._clock()
        idle = not step.stats.running and not step.stats.waiting
        for handle, choice in tell(events, self.directory.requests, self.journal, now, idle=idle):
            self._send_if_alive(EndChoice(handle, choice))
        if step.changes is not None:
            self.state_feed.step(step.changes)  # before the names of those that end are forgotten
        self._end_requests(events, now)
        self._submit_again(self.held.proceed(self.directory.requests))
        for explained in events.explained:
            self.inquiries.answer(explained)
        self.feed.publish()

    def _end_requests(self, events: StepEvents, now: float) -> None:
        journal = self.journal
        for finished in events.finished:
            self.metrics.requests.finished(finished)
            if finished.handle in self.ends.expired:
                self.ends.expired.discard(finished.handle)  # its end has been told
                continue
            journal.record(finished, now)
            if (request := self.ends.forget(finished.handle)) is not None:
                self.board.ended(finished.ledger.pages_peak, request.who.choices)
                request.finished(finished)
        for failed in events.failed:
            self.metrics.requests.failed(failed)
            journal.record(failed, now)
            if (request := self.ends.forget(failed.handle)) is not None:
                request.fail(failure(failed, request.params))
        if events.finished or events.failed:
            self._look_for_quiet()

    # --------------------------------------------------------------------------------------------

    def _submit_again(self, requests: list[OpenRequest]) -> None:
        for request in requests:
            request.begin_anew()
            self.metrics.requests.began(request)
            self._send(Submit(request.core, again=True))

    def _expire(self, handle: int, seconds: float) -> None:
        if self.ends.expire(handle, seconds):
            self._send_if_alive(CancelRequest(handle))
        self.feed.publish()
        self._look_for_quiet()

    def _watch(self, wanted: bool) -> None:
        self._send_if_alive(Watch(wanted))

    def _send(self, command: Command) -> None:
        assert self._gate is not None
        self._gate.send(command)

    def _send_if_alive(self, command: Command) -> None:
        try:
            self._send(command)
        except EngineFailed:
            logger.debug("no engine to tell %r", command)  # it forgot the request when it died

    def _look_for_quiet(self) -> None:
        if self.draining and self.directory.empty and self.text_work.idle:
            self._quiet.set()
