"""How requests end, whoever says so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pagedd.core.events import Failed, Finished, Ledger
from pagedd.errors import DeadlineExceeded, PageddError
from pagedd.server.deadlines import Deadlines
from pagedd.server.directory import Directory
from pagedd.server.held import Held
from pagedd.server.journal import Journal
from pagedd.server.metrics_requests import RequestMeter
from pagedd.server.requests import OpenRequest, Preparing
from pagedd.server.status import StatusBoard

_NO_LEDGER = Ledger(0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0, 0)


class EndCount:
    """Counts, in the status and in the metrics, the ends that no engine tells."""

    def __init__(self, board: StatusBoard, meter: RequestMeter) -> None:
        self._board = board
        self._meter = meter

    def cancelled(self, handle: int | None = None) -> None:
        """A request that no engine has; None: it was on its way to the first one."""
        self._board.cancelled()
        self._meter.cancelled(handle)

    def lost(self, requests: Sequence[OpenRequest], code: str) -> None:
        """Requests that end with an error; the status counts them with their engine."""
        self._meter.lost(requests, code)

    def engine_lost(self, open: Collection[int]) -> None:
        """All that goes on is ``open``: what an engine was told to cancel, it has not confirmed."""
        for _ in range(self._meter.engine_lost(open)):
            self._board.cancelled()


class Ends:
    """Takes requests out of every table. ``clock``: seconds since 1970.

    ``expired`` are handles that the engine has been told to cancel, and is to confirm.
    """

    def __init__(
        self,
        directory: Directory,
        journal: Journal,
        held: Held,
        deadlines: Deadlines,
        count: EndCount,
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._held = held
        self._deadlines = deadlines
        self.count = count
        self._clock = clock
        self.expired: set[int] = set()

    def forget(self, handle: int) -> OpenRequest | None:
        """The request, which is open no more; None if it was not."""
        self._deadlines.disarm(handle)
        self._held.forget(handle)
        return self._directory.requests.pop(handle, None)

    def fail(self, requests: Sequence[OpenRequest], error: PageddError) -> None:
        """End all of these with an error."""
        now = self._clock()
        for request in requests:
            self.forget(request.handle)
            self._journal.record(Failed(request.handle, error.code, error.message, {}), now)
        for request in requests:
            request.fail(error)

    def lose(self, requests: Sequence[OpenRequest], error: PageddError) -> None:
        """End all of these with an error, and the engine cannot confirm it any more."""
        self.count.lost(requests, error.code)
        self.fail(requests, error)

    def cancelled(self, request: OpenRequest) -> None:
        """End one that was cancelled, and that no engine knows."""
        self.forget(request.handle)
        finished = Finished(request.handle, True, 0, _NO_LEDGER)
        self._journal.record(finished, self._clock())
        self.count.cancelled(request.handle)
        request.finished(finished)

    def expire(self, handle: int, seconds: float) -> bool:
        """End one that has had its time. True if the engine is to be told."""
        error = DeadlineExceeded(f"the request has not ended within {seconds:g} s (timeout_s)")
        request = self._directory.by_handle(handle)
        if isinstance(request, Preparing):
            request.client.withdraw(request, error)
        if not isinstance(request, OpenRequest):
            return False
        held = handle in self._held
        self.fail([request], error)
        if held:
            self.count.cancelled(handle)
        else:
            self.expired.add(handle)
        return not held
