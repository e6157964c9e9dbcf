"""How requests end, whoever says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagedd.core.events import Failed, Finished, Ledger
from pagedd.errors import DeadlineExceeded, PageddError
from pagedd.server.deadlines import Deadlines
from pagedd.server.directory import Directory
from pagedd.server.held import Held
from pagedd.server.journal import Journal
from pagedd.server.requests import OpenRequest, Preparing
from pagedd.server.status import StatusBoard

_NO_LEDGER = Ledger(0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0, 0)


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
        board: StatusBoard,
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._held = held
        self._deadlines = deadlines
        self._board = board
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

    def cancelled(self, request: OpenRequest) -> None:
        """End one that was cancelled, and that no engine knows."""
        self.forget(request.handle)
        finished = Finished(request.handle, True, 0, _NO_LEDGER)
        self._journal.record(finished, self._clock())
        self._board.cancelled()
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
        if not held:
            self.expired.add(handle)
        return not held
