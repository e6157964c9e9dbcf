"""What a busy neighbour costs: the same load alone, and beside a process that wants a core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from pagedd.bench.drive import DaemonRun
from pagedd.bench.report import daemon_facts, output_speed

# Computes on one core until its parent is gone or so many seconds have passed, whatever happens.
BUSY = """
import os, sys, time
parent, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while os.getppid() == parent and time.monotonic() < end:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy_neighbour(seconds: float) -> Iterator[int]:
    """A process that keeps one core busy inside the block, ``seconds`` at most; its id."""
    command = [sys.executable, "-S", "-c", BUSY, str(os.getpid()), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def summarise_sides(
    concurrency: int, alone: Sequence[DaemonRun], beside: Sequence[DaemonRun]
) -> dict[str, Any]:
    """Medians of both sides, and the second's share of the first."""
    speeds = {
        name: [output_speed(run) for run in runs]
        for name, runs in (("alone", alone), ("beside", beside))
    }
    medians = {name: median(values) for name, values in speeds.items()}
    return {
        "daemon": daemon_facts(alone[0].after),
        "concurrency": concurrency,
        "output_tokens_per_s": medians,
        "runs": speeds,
        "share": medians["beside"] / medians["alone"] if medians["alone"] else 0.0,
        "failed": sum(trace.ended is None for run in (*alone, *beside) for trace in run.traces),
    }


def table(result: dict[str, Any]) -> list[str]:
    """The numbers as lines of text."""
    daemon, medians = result["daemon"], result["output_tokens_per_s"]
    lines = [
        f"{daemon['model']} on {daemon['device']}, {daemon['dtype']}, "
        f"{result['concurrency']} requests at once",
        "",
        f"  {'':<24}{'tokens/s':>10}   runs",
    ]
    for name, what in (("alone", "alone"), ("beside", "beside a busy process")):
        runs = "  ".join(f"{speed:.1f}" for speed in result["runs"][name])
        lines.append(f"  {what:<24}{medians[name]:>10.1f}   {runs}")
    lines += ["", f"  {result['share']:.0%} of the speed is left"]
    return lines
