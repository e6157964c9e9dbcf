"""Work with text that the event loop has no time for: a few worker threads, until the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from pagedd.errors import ShuttingDown

# It is work for the cores that the engine wants: a few at once, the others wait. What is read must
# not wait for what is tokenised: it may be a cancellation that comes next.
THREADS = 2  # of each kind
T = TypeVar("T")


class TextWork:
    """``on_idle`` is called whenever something has ended."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._on_idle = on_idle
        self._tokenising = anyio.CapacityLimiter(THREADS)
        self._reading = anyio.CapacityLimiter(THREADS)
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._scopes

    async def run(self, work: Callable[[], T], *, reading: bool = False) -> T:
        """What ``work`` gives or raises. Raises ShuttingDown when :meth:`end` comes first.

        A caller that is cancelled waits for it nevertheless: no more threads than said.
        """
        waiting, working = anyio.CancelScope(), anyio.CancelScope(shield=True)
        self._scopes |= {waiting, working}
        try:
            with waiting:
                async with self._reading if reading else self._tokenising:
                    with working:
                        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            self._scopes -= {waiting, working}
            self._on_idle()
        raise ShuttingDown("the daemon shut down before the request's text had been read")

    def end(self) -> None:
        """At the end of the daemon: nobody waits any longer, and what runs runs for nobody."""
        for scope in self._scopes:
            scope.cancel()
