"""Where commands come in: the scheduler gets them in order, and requests with a grammar when that
is built.

Building one may take a second, in a thread of its own. What comes meanwhile for the same request
waits with it, but a cancel ends the wait: the request goes to the scheduler to be cancelled there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple, Protocol, assert_never

from pagedd.core.events import Failed
from pagedd.core.scheduler import Scheduler
from pagedd.core.wording import counted
from pagedd.engine.background import in_background
from pagedd.engine.messages import (
    CancelRequest,
    Command,
    EndChoice,
    Explain,
    Reprioritize,
    Shutdown,
    Submit,
    Watch,
)
from pagedd.errors import BadRequest, PageddError, QueueFull

BUILD_S = 20.0  # what a build may take; nothing is known that does, and is not refused before


class Grammars(Protocol):
    """Builds what the runner needs for the grammars of requests, and keeps it."""

    def prepare(self) -> None:
        """What all of them need, in a thread of its own."""

    def is_built(self, grammar: str) -> bool:
        """No time is needed for this one."""

    def build(self, grammar: str) -> None:
        """Make it ready. Called in a thread of its own; raises PageddError if it is wrong."""


class _Built(NamedTuple):
    """What became of a grammar; ``error`` None: it is ready."""

    handle: int
    error: PageddError | None


class _Order:
    """A grammar that is being built."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.given_up = False


class Desk:
    """Takes the commands. ``wake`` lets a loop that waits for commands look here again.

    ``grammars`` None: the runner has them all, or none.
    """

    def __init__(
        self, scheduler: Scheduler, grammars: Grammars | None, wake: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._grammars = grammars
        self._wake = wake
        self._held: dict[int, list[Command]] = {}  # by handle: the submit, and what came after it
        self._orders: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self._built: SimpleQueue[_Built] = SimpleQueue()
        self._started = False

    def take(self, commands: list[Command], now: float) -> bool:
        """Hand over what can be, first what has become ready. False: the daemon wants no more."""
        while not self._built.empty():
            self._release(self._built.get(), now)
        return all(self._take(command, now) for command in commands)

    def _take(self, command: Command, now: float) -> bool:
        match command:
            case Submit(request, again) if not self._is_ready(request.params.grammar):
                self._hold(command, again, now)
            case CancelRequest(handle) if handle in self._held:
                self._apply([*self._held.pop(handle), command], now)
            case Reprioritize(handle) | Explain(handle) if handle in self._held:
                self._held[handle].append(command)
            case _:
                return apply(self._scheduler, command, now)
        return True

    def _is_ready(self, grammar: str | None) -> bool:
        return grammar is None or self._grammars is None or self._grammars.is_built(grammar)

    def _hold(self, submit: Submit, again: bool, now: float) -> None:
        """Have its grammar built; the queue's limit holds for those that wait for that, too."""
        request, limit = submit.request, self._scheduler.config.max_queue
        assert request.params.grammar is not None
        if len(self._held) >= limit and not again:
            waits = counted(len(self._held), "request", do="wait", does="waits")
            message = f"{waits} for a grammar; the queue takes {limit}"
            self._scheduler.refuse(Failed(request.handle, QueueFull.code, message, {}), now)
            return
        self._held[request.handle] = [submit]
        if not self._started:
            self._started = True
            in_background("grammars", self._build)
        self._orders.put((request.handle, request.params.grammar))

    def _release(self, built: _Built, now: float) -> None:
        held = self._held.pop(built.handle, None)
        if held is None:
            return  # it was cancelled
        if built.error is None:
            self._apply(held, now)
            return
        failed = Failed(built.handle, built.error.code, built.error.message, {})
        self._scheduler.refuse(failed, now)
        self._apply(held[1:], now)

    def _apply(self, commands: list[Command], now: float) -> None:
        for command in commands:
            apply(self._scheduler, command, now)

    def _build(self) -> None:
        """In the thread, for ever: one order after the other."""
        assert self._grammars is not None
        while True:
            handle, grammar = self._orders.get()
            if handle not in self._held:
                continue
            order = _Order(handle)
            timer = threading.Timer(BUILD_S, self._give_up, [order])
            timer.daemon = True
            timer.start()
            error: PageddError | None = None
            try:
                self._grammars.build(grammar)
            except PageddError as refused:
                error = refused
            except Exception as failure:
                error = PageddError(f"the grammar could not be built: {failure}")
            timer.cancel()
            if order.given_up:
                return  # another thread goes on
            self._tell(handle, error)

    def _give_up(self, order: _Order) -> None:
        """A build cannot be ended: its thread is left to itself, for the others there is a new."""
        order.given_up = True
        self._tell(order.handle, BadRequest(f"the grammar took more than {BUILD_S:g} s to build"))
        in_background("grammars", self._build)

    def _tell(self, handle: int, error: PageddError | None) -> None:
        self._built.put(_Built(handle, error))
        self._wake()


def apply(scheduler: Scheduler, command: Command, now: float) -> bool:
    """Hand a command to the scheduler. False: the daemon wants no more."""
    match command:
        case Submit(request, again):
            scheduler.submit(request, now, again=again)
        case CancelRequest(handle):
            scheduler.cancel(handle, now)
        case EndChoice(handle, index):
            scheduler.end_choice(handle, index, now)
        case Reprioritize(handle, priority):
            scheduler.reprioritize(handle, priority, now)
        case Explain(handle, ref):
            scheduler.explain(handle, ref, now)
        case Watch(wanted):
            scheduler.watch(wanted=wanted)
        case Shutdown():
            return False
        case _:
            assert_never(command)
    return True
