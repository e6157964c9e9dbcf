"""Ageing: who waits becomes more urgent, so that nobody waits for ever."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

MOST_URGENT = -(2**31)
ALL_LEVELS = 2**32  # from the least urgent to the most


class Ageing:
    """When each request becomes one level more urgent: after every ``seconds`` that it waited.

    Its waits count together, over its life. A promotion takes O(log n), and looking whether there
    is one constant time: due times lie in a heap. Those that are out of date stay there until they
    come up, or until they are more than half of it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[int, float] = {}  # of the handles that wait
        self._rest: dict[int, float] = {}  # of the others: seconds still to wait
        self._heap: list[tuple[float, int]] = []

    def wait(self, handle: int, now: float) -> None:
        """The request waits from ``now`` on."""
        self._set(handle, now + self._rest.pop(handle, self._seconds))

    def serve(self, handle: int, now: float) -> None:
        """The request does not wait any more."""
        self._rest[handle] = self._due.pop(handle) - now

    def restart(self, handle: int, now: float) -> None:
        """Forget what the request has waited so far."""
        self._rest.pop(handle, None)
        if handle in self._due:
            self._set(handle, now + self._seconds)

    def forget(self, handle: int) -> None:
        """The request has ended."""
        self._due.pop(handle, None)
        self._rest.pop(handle, None)

    def promote(self, now: float) -> list[tuple[int, int]]:
        """Who is to become more urgent ``now``, and by how many levels."""
        levels: dict[int, int] = {}
        while self._heap and self._heap[0][0] <= now:
            due, handle = heappop(self._heap)
            if self._due.get(handle) == due:
                more = min((now - due) // self._seconds, ALL_LEVELS)  # infinite for the least float
                levels[handle] = 1 + int(more)
        for handle, count in levels.items():
            self._set(handle, self._due[handle] + count * self._seconds)
        return list(levels.items())

    def _set(self, handle: int, due: float) -> None:
        self._due[handle] = due
        heappush(self._heap, (due, handle))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [(due, handle) for handle, due in self._due.items()]
            heapify(self._heap)
