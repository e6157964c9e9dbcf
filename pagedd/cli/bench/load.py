"""``pagedd bench load``: a daemon, or another server, under a load of one's own."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pagedd.cli.bench.sides import DaemonSide, ServerSide, Side, items_for
from pagedd.cli.bench.steps import check_counts, write_result
from pagedd.cli.flags import collect, given_flags, take_flag
from pagedd.config import Config
from pagedd.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from pagedd.bench.load import Item, Workload
    from pagedd.cli.connection import Connection

TURNS = 3
# Flags that choose no daemon of their own.
HARMLESS = ("url", "api-key", "seed", "socket")


def measure(args: argparse.Namespace) -> int:
    """0; 1 when requests failed or the other side could not be measured; 2 usage."""
    from pagedd.bench import report, sides
    from pagedd.bench.openai_server import is_http

    flags = given_flags(args)
    server_url = take_flag(args, "url") if is_http(flags.get("url")) else None
    config = collect(args, starts=True)
    load = _workload(args, config)
    other_url = args.against if is_http(args.against) else None
    _check(args, load, flags, other_url)
    with ExitStack() as stack:
        if server_url is not None:
            key = config.key if "api-key" in flags else None
            found: list[Side] = [_server_side(server_url, key)]
        else:
            found = [DaemonSide(stack.enter_context(_daemon(args, config)))]
        if other_url is not None:
            found.append(_server_side(other_url, None))
            names = _names(found, (server_url, other_url))
            result = sides.compare(names, _in_turns(found, names, load, args))
            write_result(result, sides.table(result), args.json)
            return 1 if result["failed"] else 0
        result, items = _once(found[0], load, args)
    if args.against:
        _add_hf(result, items, config, load)
    write_result(result, report.table(result), args.json)
    return 1 if result["failed"] else 0


def _check(
    args: argparse.Namespace, load: Workload, flags: dict[str, str], other_url: str | None
) -> None:
    """Errors: ``UsageError`` for flags that do not go together."""
    if args.against not in (None, "hf", other_url):
        raise UsageError(f"--against: must be hf or http://HOST:PORT, not {args.against!r}")
    if args.against == "hf" and load.concurrency is None:
        raise UsageError("--against hf compares batches: give --concurrency, not --request-rate")
    if args.against == "hf" and load.text:
        raise UsageError("--against hf takes token ids: it does not go with --prompts text")
    if args.repeats is not None and other_url is None:
        raise UsageError("--repeats goes with --against URL, or with pagedd bench preemption")
    start_flags = [name for name in flags if name not in HARMLESS]
    if "url" in flags and (start_flags or args.against == "hf"):
        what = f"--{start_flags[0]}" if start_flags else "--against hf"
        raise UsageError(f"{what} needs a private daemon: it does not go with --url")


def _workload(args: argparse.Namespace, config: Config) -> Workload:
    from pagedd.bench.load import Workload

    prefix_len, temperature = args.prefix_len or 0, args.temperature or 0.0
    check_counts(
        {
            "num-requests": args.num_requests,
            "input-len": args.input_len,
            "output-len": args.output_len,
            "concurrency": args.concurrency,
            "vocab-size": args.vocab_size,
            "repeats": args.repeats,
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
        text=args.prompts == "text",
    )


@contextmanager
def _daemon(args: argparse.Namespace, config: Config) -> Iterator[Connection]:
    """A connection to the daemon that runs, or to a private one."""
    from pagedd.cli.connection import open_connection
    from pagedd.cli.terminal import say

    against_hf = args.against == "hf"
    if not against_hf and all(name in HARMLESS for name in given_flags(args)):
        try:
            connection = open_connection(config.url, config.key)
        except Unreachable:
            if config["url"] is not None:
                raise
        else:
            with connection:
                say(f"measuring the daemon at {config.url}")
                yield connection
            return
    from pagedd.cli.bench.private import PrivateDaemons

    with PrivateDaemons(args, config) as daemons:
        say(f"starting a private daemon with {config['model']}")
        as_hf = against_hf and not config.given("dtype")
        url = daemons.url("pagedd", {"dtype": "bfloat16"} if as_hf else {})
        with open_connection(url, daemons.api_key) as connection:
            yield connection


def _server_side(url: str, api_key: str | None) -> ServerSide:
    from pagedd.bench.openai_server import find_server

    return ServerSide(find_server(url, api_key))


def _names(found: Sequence[Side], urls: Sequence[str | None]) -> list[str]:
    """What to call the sides: their addresses where they are of the same kind."""
    names = [side.name for side in found]
    if len(set(names)) == len(names):
        return names
    return [url.partition("://")[2] if url else name for name, url in zip(names, urls, strict=True)]


def _once(
    side: Side, load: Workload, args: argparse.Namespace
) -> tuple[dict[str, Any], list[Item]]:
    from pagedd.cli.progress import shown_progress

    items, warm_up = items_for([side], load, args.vocab_size)
    with shown_progress() as progress:
        return side.measure(items, load, warm_up, progress), items


def _in_turns(
    found: Sequence[Side], names: Sequence[str], load: Workload, args: argparse.Namespace
) -> list[list[dict[str, Any]]]:
    """A result of each side for each turn. Every turn has prompts of its own, so that none of them
    is in a prefix cache; within a turn both sides get the same."""
    from pagedd.bench.sides import SEED_STEP
    from pagedd.cli.progress import shown_progress

    count = args.repeats or TURNS
    turns: list[list[dict[str, Any]]] = []
    with shown_progress() as progress:
        for turn in range(count):
            its_load = replace(load, seed=load.seed + turn * SEED_STEP)
            items, warm_up = items_for(found, its_load, args.vocab_size)
            turns.append([])
            for place, (side, name) in enumerate(zip(found, names, strict=True)):
                done, what = len(found) * turn + place, f"turn {turn + 1} of {count}, {name}"

                def show(fraction: float, _: str, done: int = done, what: str = what) -> None:
                    progress((done + fraction) / (count * len(found)), what)

                turns[-1].append(side.measure(items, its_load, warm_up, show))
    return turns


def _add_hf(result: dict[str, Any], items: list[Item], config: Config, load: Workload) -> None:
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
