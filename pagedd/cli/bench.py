"""``pagedd bench``: measure a daemon under a reproducible load."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pagedd.cli.flags import add_config_flag, add_options, collect, given_flags
from pagedd.cli.parser import examples
from pagedd.config import BY_NAME, START_OPTIONS, Config
from pagedd.errors import PageddError, Unreachable, UsageError

if TYPE_CHECKING:
    from pagedd.bench.load import Item, Workload
    from pagedd.cli.connection import Connection

DESCRIPTION = """\
Send random prompts and measure speed and latency. The same --seed gives the same requests.
The daemon of --url is measured, or the one that runs here; with flags of start, with --against,
or when none runs, a private one is started for the time of the measurement.
--against hf runs transformers' generate in static batches on the same requests afterwards."""
EPILOG = examples(
    "pagedd bench",
    "pagedd bench --concurrency 64 --input-len 512 --output-len 128",
    "pagedd bench --request-rate 4 --num-requests 200 --json result.json",
    "pagedd bench --against hf --concurrency 32",
    "pagedd bench --model ~/models/Qwen3-0.6B --dtype bfloat16",
)


class Target(NamedTuple):
    """What is measured: an address, and the settings if the daemon is a private one."""

    url: str
    api_key: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The load, the output, and the flags of start for a private daemon."""
    load = parser.add_argument_group("load")
    load.add_argument("--num-requests", type=int, default=128, metavar="N", help="(default: 128)")
    pace = load.add_mutually_exclusive_group()
    pace.add_argument(
        "--concurrency", type=int, metavar="N", help="requests open at once (default: 32)"
    )
    pace.add_argument(
        "--request-rate", type=float, metavar="X", help="arrivals per second, at random times"
    )
    lengths = "mean number of {} tokens, log-normal (default: {})"
    load.add_argument(
        "--input-len", type=int, default=128, metavar="N", help=lengths.format("prompt", 128)
    )
    load.add_argument(
        "--output-len", type=int, default=64, metavar="N", help=lengths.format("answer", 64)
    )
    load.add_argument("--fixed-len", action="store_true", help="all lengths equal the means")
    load.add_argument(
        "--prefix-len", type=int, default=0, metavar="N", help="first tokens that all prompts share"
    )
    load.add_argument("--temperature", type=float, default=0.0, metavar="X", help="(default: 0)")
    output = parser.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write the result as JSON; - is the output")
    output.add_argument(
        "--against", choices=["hf"], help="compare with transformers on the same requests"
    )
    add_options(parser, (BY_NAME["url"], *START_OPTIONS))
    add_config_flag(parser)


def run(args: argparse.Namespace) -> int:
    """0; 1 when requests failed or the other side could not be measured; 2 usage."""
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
    _write(result, args.json)
    return 1 if result["failed"] else 0


def _workload(args: argparse.Namespace, config: Config) -> Workload:
    from pagedd.bench.load import Workload

    for name in ("num_requests", "input_len", "output_len", "concurrency"):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= 1_000_000:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag}: must be a whole number from 1 to 1000000, not {value}")
    if args.request_rate is not None and not 0 < args.request_rate <= 1e6:
        raise UsageError(f"--request-rate: must be above 0, not {args.request_rate:g}")
    if args.prefix_len < 0:
        raise UsageError(f"--prefix-len: must not be negative, not {args.prefix_len}")
    if not 0 <= args.temperature <= 100:
        raise UsageError(f"--temperature: must be from 0 to 100, not {args.temperature:g}")
    concurrency = args.concurrency
    if concurrency is None and args.request_rate is None:
        concurrency = 32
    return Workload(
        num_requests=args.num_requests,
        concurrency=concurrency,
        request_rate=args.request_rate,
        input_len=args.input_len,
        output_len=args.output_len,
        fixed_len=args.fixed_len,
        prefix_len=args.prefix_len,
        seed=config["seed"] or 0,
        temperature=args.temperature,
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
    with (
        _private_daemon(args, config) as target,
        open_connection(target.url, target.api_key) as connection,
    ):
        return _drive(connection, load)


def _drive(connection: Connection, load: Workload) -> tuple[dict[str, Any], list[Item]]:
    from pagedd.bench.drive import Driver
    from pagedd.bench.load import make_items
    from pagedd.bench.report import summarise
    from pagedd.cli.progress import shown_progress
    from pagedd.cli.status import ask_status

    hello = connection.hello
    items = make_items(load, hello.limits.vocab_size, hello.max_model_len)
    # another prompt than those that are measured: none of them is in the prefix cache
    warm_up = replace(load, seed=load.seed + 1, num_requests=1, concurrency=1, request_rate=None)
    first = make_items(warm_up, hello.limits.vocab_size, hello.max_model_len)
    Driver(connection, first, warm_up, lambda fraction, what: None).run(
        ask_status(connection), lambda: ask_status(connection)
    )
    with shown_progress() as progress:
        run = Driver(connection, items, load, progress).run(
            ask_status(connection), lambda: ask_status(connection)
        )
    return summarise(run, load), items


@contextmanager
def _private_daemon(args: argparse.Namespace, config: Config) -> Iterator[Target]:
    """A daemon on a socket of its own, for the time of the measurement."""
    from pagedd.cli.launch import end, launch
    from pagedd.cli.start import ensure_model, flags_again
    from pagedd.cli.terminal import say

    ensure_model(config)
    with tempfile.TemporaryDirectory(prefix="pagedd-bench-") as folder:
        socket = Path(folder) / "pagedd.sock"
        flags = [
            f for f in flags_again(args) if not f.startswith(("--url", "--socket", "--listen"))
        ]
        flags += [f"--socket={socket}", "--listen=off"]
        if args.against and not config.given("dtype"):
            flags.append("--dtype=bfloat16")
        say(f"starting a private daemon with {config['model']}")
        daemon = launch(flags, Path(folder) / "log", own_session=False)
        try:
            yield Target(f"unix:{socket}", config["api-key"])
        finally:
            end(daemon)


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


def _write(result: dict[str, Any], where: str | None) -> None:
    import json

    from pagedd.bench.report import table

    if where == "-":
        print(json.dumps(result, indent=2))
        return
    print("\n".join(table(result)))
    if where is not None:
        try:
            with open(where, "w", encoding="utf-8") as file:
                file.write(json.dumps(result, indent=2) + "\n")
        except OSError as error:
            raise PageddError(f"--json {where}: cannot be written: {error.strerror}") from error
