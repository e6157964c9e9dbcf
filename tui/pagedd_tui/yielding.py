"""Whether other programs want the cores: the engine comes first, and the screen can wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psutil

LOOK_EVERY_S = 1.0
# Of all cores idle. An engine never takes all of its cores: it waits for its own threads and the
# daemon at each step, and what takes a core away in between makes the step longer all the same.
BUSY_BELOW = 0.35
CALM_ABOVE = 0.5
_NICE = 19


def step_back() -> None:
    """Let the engine, which may be on this machine, have the cores first.

    Its threads wait for each other, so that what takes one core away for a moment stops them all:
    where the system can, this process waits for a core that is idle, or for its small share.
    """
    with suppress(OSError):
        os.nice(_NICE)
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


class CpuTimes(NamedTuple):
    """Seconds of all cores since some moment: without work, and in all."""

    idle: float
    total: float


def cpu_times() -> CpuTimes:
    """Those of this machine."""
    times = psutil.cpu_times()
    return CpuTimes(times.idle + getattr(times, "iowait", 0.0), sum(times[:8]))


class Busy:
    """Looks once a second; between the two limits it stays as it was."""

    def __init__(self, read: Callable[[], CpuTimes] = cpu_times) -> None:
        self._read = read
        self._before = read()
        self._next = 0.0
        self.busy = False

    def look(self, now: float) -> bool:
        """Whether few cores were idle lately."""
        if now < self._next:
            return self.busy
        self._next = now + LOOK_EVERY_S
        before, self._before = self._before, self._read()
        total = self._before.total - before.total
        if total > 0:
            idle = (self._before.idle - before.idle) / total
            self.busy = idle < (CALM_ABOVE if self.busy else BUSY_BELOW)
        return self.busy
