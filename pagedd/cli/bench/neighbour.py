"""``pagedd bench neighbour``: a private daemon alone, and one beside a process that wants a core.

Two daemons, because one that fits itself to a neighbour would still do so when that has gone.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from pagedd.cli.bench.private import PrivateDaemons, refuse_flags
from pagedd.cli.bench.steps import check_counts, drive, write_result
from pagedd.cli.flags import collect

if TYPE_CHECKING:
    from pagedd.bench.drive import DaemonRun
    from pagedd.bench.load import Workload
    from pagedd.cli.connection import Connection
    from pagedd.cli.progress import Progress

CONCURRENCY = 8
REPEATS = 3
MAX_BUSY_S = 600.0  # the busy process ends by itself after so long


def measure(args: argparse.Namespace) -> int:
    """0; 1 when requests failed; 2 usage."""
    from pagedd.bench.load import Workload
    from pagedd.bench.neighbour import busy_neighbour, summarise_sides, table
    from pagedd.cli.connection import open_connection
    from pagedd.cli.progress import shown_progress
    from pagedd.cli.terminal import say

    refuse_flags(args, ("url",))
    config = collect(args, starts=True)
    counts = {"num-requests": args.num_requests, "input-len": args.input_len}
    counts |= {"output-len": args.output_len, "repeats": args.repeats}
    check_counts(counts | {"concurrency": args.concurrency})
    load = Workload(
        num_requests=args.num_requests,
        concurrency=args.concurrency or CONCURRENCY,
        request_rate=None,
        input_len=args.input_len,
        output_len=args.output_len,
        fixed_len=True,
        prefix_len=0,
        seed=config["seed"] or 0,
        temperature=0.0,
    )
    repeats = args.repeats or REPEATS
    alone: list[DaemonRun] = []
    beside: list[DaemonRun] = []
    with PrivateDaemons(args, config) as daemons:
        say(f"starting two private daemons with {config['model']}")
        with shown_progress() as progress:
            for number in range(2 * repeats):
                side, runs = ("beside", beside) if number % 2 else ("alone", alone)
                busy = busy_neighbour(MAX_BUSY_S) if number % 2 else nullcontext()
                turn = Turn(progress, number, 2 * repeats)
                with open_connection(daemons.url(side, {}), daemons.api_key) as connection, busy:
                    runs.append(_drive(connection, load, number, turn))
    result = summarise_sides(args.concurrency or CONCURRENCY, alone, beside)
    write_result(result, table(result), args.json)
    return 1 if result["failed"] else 0


class Turn:
    """The progress of one run of several."""

    def __init__(self, progress: Progress, number: int, total: int) -> None:
        self._progress = progress
        self._number = number
        self._total = total

    def __call__(self, fraction: float, what: str) -> None:
        done = (self._number + fraction) / self._total
        self._progress(done, f"run {self._number + 1} of {self._total}: {what}")


def _drive(connection: Connection, load: Workload, number: int, progress: Progress) -> DaemonRun:
    """A run with prompts of its own, so that none finds its beginning in the cache."""
    from pagedd.bench.load import make_items

    limits = connection.hello
    load = replace(load, seed=load.seed + 1000 * number)
    items = make_items(load, limits.limits.vocab_size, limits.max_model_len)
    other = replace(load, seed=load.seed + 1, num_requests=1, concurrency=1)
    warm_up = make_items(other, limits.limits.vocab_size, limits.max_model_len)
    return drive(connection, items, load, progress, warm_up=warm_up)
