"""What is left of requests is collected, however much was there before the first of them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

LOADED = 400_000  # objects of a model, of torch
REQUESTS = 60_000


def test_garbage_does_not_pile_up_behind_what_was_loaded() -> None:
    """In a process of its own, because what is kept is kept to its end."""
    script = f"""
    import gc
    from pagedd.engine.main import _keep

    class Request:
        pass

    loaded = _keep([[] for _ in range({LOADED})])
    before = gc.get_stats()[2]["collections"]
    running = []
    for _ in range({REQUESTS}):
        request = Request()
        request.sequence = Request()
        request.sequence.request = request
        running.append(request)
        if len(running) > 100:
            running.pop(0)
    print(gc.get_stats()[2]["collections"] - before, len(gc.get_objects()) < {REQUESTS})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    collections, few = done.stdout.split()
    assert int(collections) > 0
    assert few == "True"
