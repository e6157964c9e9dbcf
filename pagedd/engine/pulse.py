"""Does a process move? What the system says of it, whatever it reports itself."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


class Pulse:
    """Of one process. It has to be looked at again and again; ``clock`` in seconds."""

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._pid = pid
        self._clock = clock
        self._computed = -1.0  # processor time of all its threads, seconds
        self._since = clock()  # when that last grew
        self.stopped = False  # by SIGSTOP, a terminal or a debugger

    @property
    def still_s(self) -> float:
        """For how long it has computed nothing, at the last look."""
        return self._clock() - self._since

    def look(self) -> None:
        """A process that is gone moves as little as one that was stopped, but is not stopped."""
        try:
            process = psutil.Process(self._pid)
            self.stopped = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
            times = process.cpu_times()
        except psutil.Error:
            self.stopped = False
            return
        computed = times.user + times.system
        if computed != self._computed:
            self._computed, self._since = computed, self._clock()
