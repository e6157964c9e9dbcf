"""``pagedd bench load``: a daemon, or a private one, under a load of one's own."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pagedd.cli.bench.steps import check_counts, drive, write_result
from pagedd.cli.flags import collect, given_flags
from pagedd.config import Config
from pagedd.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from pagedd.bench.load import Item, Workload
    from pagedd.cli.connection import Connection


def measure(args: argparse.Namespace) -> int:
    """0; 1 when requests failed or the other side could not be measured; 2 usage."""
    from pagedd.bench.report import table

    flags = given_flags(args)
    config = collect(args, starts=True)
    load = _workload(args, config)
    if args.against and load.concurrency is None:
        raise UsageError("--against hf compares batches: give --concurrency, not --request-rate")
    start_flags = [name for name in flags if name not in ("url", "api-key", "seed", "socket")]
    if "url" in flags and (start_flags or args.against):
        what = f"--{start_flags[0]}" if start_flags else "--against"
        raise UsageError(f"{what} needs a private daemon: it does not go with --url")
    result, items = _measure(args, config, load, private=bool(start_flags or args.against))
    if args.against:
        _add_peer(result, items, config, load)
    write_result(result, table(result), args.json)
    return 1 if result["failed"] else 0


def _workload(args: argparse.Namespace, config: Config) -> Workload:
    from pagedd.bench.load import Workload

    prefix_len, temperature = args.prefix_len or 0, args.temperature or 0.0
    check_counts(
        {
            "num-requests": args.num_requests,
            "input-len": args.input_len,
            "output-len": args.output_len,
            "concurrency": args.concurrency,
        }
    )
    if args.request_rate is not None and not 0 < args.request_rate <= 1e6:
        raise UsageError(f"--request-rate: must be above 0, not {args.request_rate:g}")
    if prefix_len < 0:
        raise UsageError(f"--prefix-len: must not be negative, not {prefix_len}")
    if not 0 <= temperature <= 100:
        raise UsageError(f"--temperature: must be from 0 to 100, not {temperature:g}")
    concurrency = args.concurrency
    if concurrency is None and args.request_rate is None:
        concurrency = 32
    return Workload(
        num_requests=args.num_requests,
        concurrency=concurrency,
        request_rate=args.request_rate,
        input_len=args.input_len,
        output_len=args.output_len,
        fixed_len=bool(args.fixed_len),
        prefix_len=prefix_len,
        seed=config["seed"] or 0,
        temperature=temperature,
    )


def _measure(
    args: argparse.Namespace, config: Config, load: Workload, *, private: bool
) -> tuple[dict[str, Any], list[Item]]:
    from pagedd.cli.connection import open_connection
    from pagedd.cli.terminal import say

    if not private:
        try:
            with open_connection(config.url, config["api-key"]) as connection:
                say(f"measuring the daemon at {config.url}")
                return _drive(connection, load)
        except Unreachable:
            if config["url"] is not None:
                raise
    from pagedd.cli.bench.private import PrivateDaemons

    against_hf = args.against and not config.given("dtype")
    with PrivateDaemons(args, config) as daemons:
        say(f"starting a private daemon with {config['model']}")
        url = daemons.url("pagedd", {"dtype": "bfloat16"} if against_hf else {})
        with open_connection(url, daemons.api_key) as connection:
            return _drive(connection, load)


def _drive(connection: Connection, load: Workload) -> tuple[dict[str, Any], list[Item]]:
    from pagedd.bench.load import make_items
    from pagedd.bench.report import summarise
    from pagedd.cli.progress import shown_progress

    vocab_size, max_model_len = connection.hello.limits.vocab_size, connection.hello.max_model_len
    items = make_items(load, vocab_size, max_model_len)
    # another prompt than those that are measured: none of them is in the prefix cache
    other = replace(load, seed=load.seed + 1, num_requests=1, concurrency=1, request_rate=None)
    warm_up = make_items(other, vocab_size, max_model_len)
    with shown_progress() as progress:
        run = drive(connection, items, load, progress, warm_up=warm_up)
    return summarise(run, load), items


def _add_peer(result: dict[str, Any], items: list[Item], config: Config, load: Workload) -> None:
    from pagedd.bench.peer import measure_hf
    from pagedd.cli.progress import shown_progress

    daemon = result["daemon"]
    job = {
        "model": config["model"],
        "load_format": config["load-format"],
        "dtype": daemon["dtype"],
        "device": daemon["device"],
        "batch": load.concurrency,
        "threads": config["threads"],
    }
    with shown_progress() as progress:
        result["peer"] = measure_hf(job, items, progress)
    result["ratio"] = result["output_tokens_per_s"] / result["peer"]["output_tokens_per_s"]
