"""Threads beside the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_background(name: str, work: Callable[[], object]) -> None:
    """Start ``work`` in a thread that ends with the process.

    It has the priority of all others: one that gave way to other programs while it holds the
    interpreter's lock would hold up the loop with it.
    """
    threading.Thread(target=work, name=name, daemon=True).start()
