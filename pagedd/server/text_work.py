"""Work with text that the event loop has no time for: a few worker threads, until the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import anyio
import anyio.to_thread

from pagedd.errors import ShuttingDown

# It is work for the cores that the engine wants: a few at once, the others wait. What is read must
# not wait for what is tokenised: it may be a cancellation that comes next. And no prompt waits for
# a text that is only counted.
THREADS = 2  # for frames, and for prompts
Kind = Literal["frame", "prompt", "count"]
T = TypeVar("T")


class TextWork:
    """``on_idle`` is called whenever something has ended."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._on_idle = on_idle
        self._limiters: dict[Kind, anyio.CapacityLimiter] = {
            "frame": anyio.CapacityLimiter(THREADS),
            "prompt": anyio.CapacityLimiter(THREADS),
            "count": anyio.CapacityLimiter(1),
        }
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._scopes

    async def run(self, work: Callable[[], T], kind: Kind = "prompt") -> T:
        """What ``work`` gives or raises. Raises ShuttingDown when :meth:`end` comes first.

        A caller that is cancelled waits for it nevertheless: no more threads than said.
        """
        waiting, working = anyio.CancelScope(), anyio.CancelScope(shield=True)
        self._scopes |= {waiting, working}
        try:
            with waiting:
                async with self._limiters[kind]:
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
