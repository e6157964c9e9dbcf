"""``pagedd bench``: measure a daemon, under a load of one's own or in fixed comparisons."""

from __future__ import annotations

import argparse
from importlib import import_module

from pagedd.cli.flags import add_config_flag, add_options
from pagedd.cli.parser import examples
from pagedd.config import BY_NAME, START_OPTIONS
from pagedd.errors import UsageError

DESCRIPTION = """\
Measure speed and latency. The same --seed gives the same requests.

load        Send random prompts to the daemon of --url, or to the one that runs here; with flags
            of start, with --against hf, or when none runs, a private one is started.
            An http:// address is any server with OpenAI's /v1/completions, such as vLLM's or
            llama.cpp's. --against hf runs transformers' generate in static batches on the same
            requests; --against http://HOST:PORT another server, in turns with the first.
case46      20 requests at once of about 200 tokens each, in a cache of 100 pages of 32 tokens:
            static reservation of 2,048 tokens a request against paging.
preemption  The same load under each preemption policy and mode, in a cache that is too small for
            it, and in one that is not: what running short of pages costs.
neighbour   The same load alone, and beside a process that keeps a core busy.
scaling     How cost grows: with requests at once, with the context, and outside the model.
perplexity  How well the model foretells --text with each form of --weights, against float32: what
            rounding costs. Takes --model, --device and --threads.

All but load and perplexity start private daemons; flags of start go to all of them."""
EPILOG = examples(
    "pagedd bench",
    "pagedd bench --concurrency 64 --input-len 512 --output-len 128",
    "pagedd bench --request-rate 4 --num-requests 200 --json result.json",
    "pagedd bench --against hf --concurrency 32",
    "pagedd bench --against http://127.0.0.1:8000 --concurrency 8",
    "pagedd bench --url http://127.0.0.1:8000 --vocab-size 49152",
    "pagedd bench --model ~/models/Qwen3-0.6B --dtype bfloat16",
    "pagedd bench case46",
    "pagedd bench preemption --repeats 5 --json result.json",
    "pagedd bench neighbour --concurrency 8",
    "pagedd bench scaling --json scaling.json --plot scaling.png",
    "pagedd bench perplexity --model ~/models/Qwen3-0.6B --text novel.txt",
)
URL_HELP = (
    "what to measure: a daemon, unix:PATH or ws://HOST:PORT, or an OpenAI-compatible server, "
    "http://HOST:PORT; default: the socket"
)
BENCHES = ("load", "case46", "preemption", "neighbour", "scaling", "perplexity")
# Where the values are → what they mean, and the default.
_COUNTS = {
    "num_requests": ("number of requests", 128),
    "input_len": ("mean number of prompt tokens", 128),
    "output_len": ("mean number of answer tokens", 64),
}
_OWN_DEFAULTS = {
    "preemption": {"num_requests": 16, "input_len": 24, "output_len": 80},
    "neighbour": {"num_requests": 32},
}
# The flags that not all of them take: where their values are → who takes them.
_TAKERS = {
    "num_requests": ("load", "preemption", "neighbour"),
    "input_len": ("load", "preemption", "neighbour", "scaling"),
    "output_len": ("load", "preemption", "neighbour", "scaling"),
    "concurrency": ("load", "neighbour"),
    "request_rate": ("load",),
    "fixed_len": ("load",),
    "prefix_len": ("load",),
    "temperature": ("load",),
    "against": ("load",),
    "prompts": ("load",),
    "vocab_size": ("load",),
    "repeats": ("load", "preemption", "neighbour"),
    "plot": ("scaling",),
    "text": ("perplexity",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which one, its load, the output, and the flags of start for private daemons."""
    parser.add_argument(
        "what", nargs="?", default="load", choices=BENCHES, help="what to measure (default: load)"
    )
    both = parser.add_argument_group("load, preemption and neighbour; lengths for scaling too")
    for dest, (what, default) in _COUNTS.items():
        others = [f"{name}: {own[dest]}" for name, own in _OWN_DEFAULTS.items() if dest in own]
        both.add_argument(
            _flag(dest),
            type=int,
            metavar="N",
            help=f"{what} (default: {'; '.join([str(default), *others])})",
        )
    both.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="runs of each setting, or of each side with --against URL (default: 3)",
    )
    load = parser.add_argument_group("load; --concurrency for neighbour too")
    pace = load.add_mutually_exclusive_group()
    pace.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help="requests open at once (default: 32; neighbour: 8)",
    )
    pace.add_argument(
        "--request-rate", type=float, metavar="X", help="arrivals per second, at random times"
    )
    load.add_argument(
        "--fixed-len",
        action="store_true",
        default=None,
        help="all lengths equal the means, instead of a log-normal spread",
    )
    load.add_argument(
        "--prefix-len", type=int, metavar="N", help="first tokens that all prompts share"
    )
    load.add_argument(
        "--temperature", type=float, metavar="X", help="as in pagedd generate (default: 0)"
    )
    load.add_argument(
        "--against",
        metavar="hf|URL",
        help="compare with transformers, or with the server at http://HOST:PORT, on the same "
        "requests",
    )
    load.add_argument(
        "--prompts",
        choices=["ids", "text"],
        metavar="ids|text",
        help="random token ids, or random words for each side to split (default: ids)",
    )
    load.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="ids that there are, for a server that does not say so",
    )
    perplexity = parser.add_argument_group("perplexity alone")
    perplexity.add_argument("--text", metavar="FILE", help="the text, in UTF-8")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", metavar="FILE", help="write the result as JSON; -: to standard output"
    )
    output.add_argument(
        "--plot", metavar="FILE", help="scaling: draw the figures; needs matplotlib"
    )
    url = BY_NAME["url"]._replace(help=URL_HELP)
    add_options(parser, (url, *START_OPTIONS))
    add_config_flag(parser)


def run(args: argparse.Namespace) -> int:
    """0; 1 when requests failed or the other side could not be measured; 2 usage."""
    for dest, takers in _TAKERS.items():
        if getattr(args, dest) is not None and args.what not in takers:
            *others, last = takers
            whom = f"{', '.join(others)} and {last}" if others else last
            raise UsageError(f"{_flag(dest)} goes with {whom}, not with pagedd bench {args.what}")
    for dest, (_, default) in _COUNTS.items():
        if getattr(args, dest) is None:
            setattr(args, dest, _OWN_DEFAULTS.get(args.what, {}).get(dest, default))
    module = import_module(f"pagedd.cli.bench.{args.what}")
    code: int = module.measure(args)
    return code


def _flag(dest: str) -> str:
    return "--" + dest.replace("_", "-")
