"""``pagedd bench case46``: static reservation against paging in the same memory."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pagedd.cli.bench.private import PrivateDaemons, refuse_flags
from pagedd.cli.bench.steps import drive, write_result
from pagedd.cli.flags import collect

if TYPE_CHECKING:
    from pagedd.bench.case46 import Case
    from pagedd.bench.drive import DaemonRun
    from pagedd.cli.connection import Connection

# What the case says itself.
FIXED = ("url", "num-pages", "page-size", "kv-cache-memory", "max-num-seqs")
STATUS_EVERY_S = 0.05
WARM_UP_ANSWER = 8


def measure(args: argparse.Namespace) -> int:
    """0; 1 when requests failed; 2 usage."""
    from pagedd.bench.case46 import Case, compare, table
    from pagedd.cli.connection import open_connection
    from pagedd.cli.terminal import say

    refuse_flags(args, FIXED)
    config = collect(args, starts=True)
    case, runs = Case(), {}
    pool = {"num-pages": case.num_pages, "page-size": case.page_size}
    sides = (("static", "static reservation", case.reservations), ("paged", "paging", None))
    with PrivateDaemons(args, config) as daemons:
        say(f"starting a private daemon with {config['model']}, and then another one")
        for side, what, at_once in sides:
            slots = {"max-num-seqs": at_once or case.num_requests}
            url = daemons.url(side, pool | slots)
            with open_connection(url, daemons.api_key) as connection:
                runs[side] = _drive(connection, case, config["seed"] or 0, what)
    result = compare(case, runs["static"], runs["paged"])
    write_result(result, table(result), args.json)
    return 1 if result["failed"] else 0


def _drive(connection: Connection, case: Case, seed: int, what: str) -> DaemonRun:
    from pagedd.bench.load import all_at_once, check_fit
    from pagedd.cli.progress import shown_progress

    vocab_size = connection.hello.limits.vocab_size
    items = case.items(vocab_size, seed)
    check_fit(items, connection.hello.max_model_len)
    other = case.items(vocab_size, seed + 1)[0]
    with shown_progress() as progress:
        return drive(
            connection,
            items,
            all_at_once(items, seed),
            lambda fraction, count: progress(fraction, f"{what}: {count}"),
            warm_up=[other._replace(output_len=WARM_UP_ANSWER)],
            status_every=STATUS_EVERY_S,
        )
