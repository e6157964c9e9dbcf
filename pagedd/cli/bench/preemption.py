"""``pagedd bench preemption``: every policy and mode on a cache that is too small for the load."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagedd.cli.bench.private import PrivateDaemons, refuse_flags
from pagedd.cli.bench.steps import check_counts, drive, write_result
from pagedd.cli.flags import collect, given_flags
from pagedd.config import BY_NAME, Config

if TYPE_CHECKING:
    from pagedd.bench.drive import DaemonRun
    from pagedd.bench.preemption import Setting, Shortage
    from pagedd.cli.connection import Connection
    from pagedd.cli.progress import Progress

# What is varied, and what follows from that.
FIXED = ("url", "kv-cache-memory", "preemption-policy", "preemption-mode")
POLICIES = BY_NAME["preemption-policy"].kind.choices
PAGE_SIZE = 16
# Before each run: requests, and tokens of their prompts and answers; enough that the daemon knows
# what a prefill takes, and little enough for any pool.
WARM_UP = (2, 48, 8)


def measure(args: argparse.Namespace) -> int:
    """0; 1 when requests failed; 2 usage."""
    from pagedd.bench.preemption import summarise, table
    from pagedd.cli.progress import shown_progress
    from pagedd.cli.terminal import say

    refuse_flags(args, FIXED)
    config = collect(args, starts=True)
    load = _load(args, config)
    first = config["seed"] or 0
    seeds = range(first, first + (args.repeats or 3))
    with PrivateDaemons(args, config) as daemons:
        say(f"starting private daemons with {config['model']}")
        with shown_progress() as progress:
            runs = _run_all(daemons, load, seeds, progress)
    result = summarise(load, seeds, runs)
    write_result(result, table(result), args.json)
    return 1 if result["failed"] else 0


def _load(args: argparse.Namespace, config: Config) -> Shortage:
    """The load; only flags set its pages, no file or variable, which are for other daemons."""
    from pagedd.bench.preemption import Shortage

    check_counts(
        {
            "num-requests": args.num_requests,
            "input-len": args.input_len,
            "output-len": args.output_len,
            "repeats": args.repeats,
        }
    )
    flags = given_flags(args)
    page_size = config["page-size"] if "page-size" in flags else None
    return Shortage(
        num_requests=args.num_requests,
        input_len=args.input_len,
        output_len=args.output_len,
        page_size=page_size or PAGE_SIZE,
        num_pages=config["num-pages"] if "num-pages" in flags else None,
    )


def _run_all(
    daemons: PrivateDaemons, load: Shortage, seeds: Sequence[int], progress: Progress
) -> dict[Setting, list[DaemonRun]]:
    """One run of each setting for each of ``seeds``, in turns."""
    from pagedd.bench.preemption import schedule, settings
    from pagedd.cli.connection import open_connection

    runs: dict[Setting, list[DaemonRun]] = {setting: [] for setting in settings(POLICIES)}
    order = schedule(POLICIES, seeds)
    for done, (seed, setting) in enumerate(order):
        what = f"run {done + 1} of {len(order)}: {setting.name}"
        progress(done / len(order), what)
        url = daemons.url(setting.name.replace(" ", "-"), _options(load, seeds, setting))
        with open_connection(url, daemons.api_key) as connection:

            def show(fraction: float, count: str, done: int = done, what: str = what) -> None:
                progress((done + fraction) / len(order), what)

            runs[setting].append(_run(connection, load, seed, show))
    return runs


def _options(load: Shortage, seeds: Sequence[int], setting: Setting) -> dict[str, object]:
    small, large = load.pools(seeds)
    options: dict[str, object] = {"page-size": load.page_size, "num-pages": large}
    if setting.policy is not None:
        options |= {
            "num-pages": small,
            "preemption-policy": setting.policy,
            "preemption-mode": setting.mode,
        }
    return options


def _run(connection: Connection, load: Shortage, seed: int, progress: Progress) -> DaemonRun:
    from pagedd.bench.load import Item, all_at_once, check_fit, random_tokens

    vocab_size = connection.hello.limits.vocab_size
    items = load.items(vocab_size, seed)
    check_fit(items, connection.hello.max_model_len)
    count, prompt, answer = WARM_UP
    draw = random.Random(seed)
    warm_up = [Item(random_tokens(draw, prompt, vocab_size), answer, 0.0) for _ in range(count)]
    return drive(connection, items, all_at_once(items, seed), progress, warm_up=warm_up)
