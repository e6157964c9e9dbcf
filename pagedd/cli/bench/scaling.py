"""``pagedd bench scaling``: a daemon under growing loads, and the step outside the model."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pagedd.cli.bench.private import PrivateDaemons, refuse_flags
from pagedd.cli.bench.steps import check_counts, drive, write_result
from pagedd.cli.flags import collect
from pagedd.config import Config
from pagedd.errors import UsageError

if TYPE_CHECKING:
    from pagedd.bench.drive import Run
    from pagedd.bench.load import Workload
    from pagedd.cli.connection import Connection
    from pagedd.cli.progress import Progress

FIXED = ("url", "max-num-seqs")
WARM_UP_ANSWER = 8


def measure(args: argparse.Namespace) -> int:
    """0; 1 when requests failed; 2 usage."""
    from pagedd.bench.plot import blank, draw
    from pagedd.bench.scaling import knee, measure_outside, table
    from pagedd.cli.progress import shown_progress
    from pagedd.cli.terminal import say

    refuse_flags(args, FIXED)
    config = collect(args, starts=True)
    check_counts({"input-len": args.input_len, "output-len": args.output_len})
    if args.output_len < 2:
        raise UsageError("--output-len: must be at least 2, for there to be a time between tokens")
    if args.plot is not None:
        blank()  # what it lacks is better told before the measurement than after it
    result: dict[str, Any] = {"input_len": args.input_len, "output_len": args.output_len}
    with shown_progress() as progress:
        progress(0.0, "the step outside the model")
        outside = measure_outside()
        with PrivateDaemons(args, config) as daemons:
            say(f"starting a private daemon with {config['model']}")
            result |= _measure(args, config, daemons, progress)
    result |= {"outside": outside, "knee": knee(result["concurrency"])}
    write_result(result, table(result), args.json)
    if args.plot is not None:
        draw(result, args.plot)
    return 0


def _measure(
    args: argparse.Namespace, config: Config, daemons: PrivateDaemons, progress: Progress
) -> dict[str, Any]:
    """Everything that needs a daemon; one that has slots for the largest load."""
    from pagedd.bench.report import daemon_facts
    from pagedd.bench.scaling import (
        CONCURRENCIES,
        concurrency_point,
        context_loads,
        context_point,
        loads,
    )
    from pagedd.cli.connection import open_connection
    from pagedd.cli.status import ask_status

    seed = config["seed"] or 0
    url = daemons.url("pagedd", {"max-num-seqs": CONCURRENCIES[-1]})
    with open_connection(url, daemons.api_key) as connection:
        lengths = list(context_loads(connection.hello.max_model_len, seed))
        growing = list(loads(args.input_len, args.output_len, seed))
        total, done = len(lengths) + len(growing), 0
        points: dict[str, list[dict[str, float]]] = {"concurrency": [], "context": []}
        for name, each in (("concurrency", growing), ("context", lengths)):
            point = concurrency_point if name == "concurrency" else context_point
            for load in each:
                progress(done / total, f"run {done + 1} of {total}")
                points[name].append(point(_drive(connection, load), load))
                done += 1
        return points | {"daemon": daemon_facts(ask_status(connection))}


def _drive(connection: Connection, load: Workload) -> Run:
    from pagedd.bench.load import make_items

    vocab_size, max_model_len = connection.hello.limits.vocab_size, connection.hello.max_model_len
    items = make_items(load, vocab_size, max_model_len)
    other = replace(load, seed=load.seed + 1, num_requests=1, concurrency=1, input_len=16)
    warm_up = make_items(replace(other, output_len=WARM_UP_ANSWER), vocab_size, max_model_len)
    return drive(connection, items, load, lambda fraction, what: None, warm_up=warm_up)
