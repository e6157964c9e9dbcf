"""Requests that outlive their engine: who had no token of it yet waits for the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pagedd.server.requests import OpenRequest

MAX_RESTARTS = 2  # engines that get a request again; it may be what kills them


class Losses(NamedTuple):
    """Requests that end with their engine."""

    lost: list[OpenRequest]  # begun, or tried often enough
    cancelled: list[OpenRequest]  # nobody wants them any more


class Held:
    """In the order in which they came. No engine knows them.

    The next engine gets all of them at once. When that dies too, one of them may be the cause, and
    the others must not be lost by it: so from then on each gets to an engine when the client of the
    one before it has its first token, or that has ended.
    """

    def __init__(self) -> None:
        self._requests: dict[int, OpenRequest] = {}
        self._tried: int | None = None  # the one that the engine got alone

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, handle: int) -> bool:
        return handle in self._requests

    def take(self, requests: Iterable[OpenRequest]) -> Losses:
        """The engine died with these: keep those that can begin anew."""
        losses = Losses([], [])
        self._tried = None
        kept, self._requests = self._requests, {}
        for request in requests:
            if request.handle in kept:
                self._requests[request.handle] = request
            elif request.cancelling:
                losses.cancelled.append(request)
            elif request.begun or request.past.restarts >= MAX_RESTARTS:
                losses.lost.append(request)
            else:
                self._requests[request.handle] = request
        return losses

    @property
    def handles(self) -> list[int]:
        """Of all, in their order."""
        return list(self._requests)

    def add(self, request: OpenRequest) -> None:
        """One that was tokenised when the engine died."""
        self._requests[request.handle] = request

    def forget(self, handle: int) -> None:
        """It has ended."""
        self._requests.pop(handle, None)

    def release(self) -> list[OpenRequest]:
        """There is an engine again: those that it is to get now."""
        if any(request.past.restarts for request in self._requests.values()):
            return self._one()
        requests, self._requests = self._requests, {}
        return list(requests.values())

    def proceed(self, requests: Mapping[int, OpenRequest]) -> list[OpenRequest]:
        """A step was done, and ``requests`` are open: those that the engine is to get then."""
        if self._tried is None:
            return []
        tried = requests.get(self._tried)
        return self._one() if tried is None or tried.begun else []

    def _one(self) -> list[OpenRequest]:
        """The first, alone."""
        self._tried = next(iter(self._requests), None)
        return [] if self._tried is None else [self._requests.pop(self._tried)]
