"""Threads for work that must not take cores from the steps."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

NICENESS = 10


def in_background(name: str, work: Callable[[], object]) -> None:
    """Start ``work`` in a thread that gives way to others, and ends with the process."""

    def run() -> None:
        if sys.platform == "linux":  # elsewhere a priority is a process's, not a thread's
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        work()

    threading.Thread(target=run, name=name, daemon=True).start()
