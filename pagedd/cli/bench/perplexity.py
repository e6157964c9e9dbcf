"""``pagedd bench perplexity``: how well each form of the weights foretells a text."""

from __future__ import annotations

import argparse

from pagedd.cli.bench.steps import write_result
from pagedd.cli.flags import collect, given_flags
from pagedd.errors import UsageError

CHILD = "pagedd.runtime.bench_perplexity"
# The only flags of start that mean something here.
TAKEN = ("model", "device", "threads")


def measure(args: argparse.Namespace) -> int:
    """0; 2 usage."""
    import os

    from pagedd.bench.child import run_child
    from pagedd.bench.perplexity import table
    from pagedd.cli.progress import shown_progress
    from pagedd.cli.start import ensure_model

    if args.text is None:
        raise UsageError("pagedd bench perplexity needs a text: --text FILE")
    for name in given_flags(args):
        if name not in TAKEN:
            raise UsageError(f"--{name} means nothing to pagedd bench perplexity")
    config = collect(args)
    ensure_model(config)
    job = {name: config[name] for name in TAKEN} | {"text": os.path.abspath(args.text)}
    with shown_progress() as progress:
        result = run_child(CHILD, job, progress, "the perplexity could not be measured")
    write_result(result, table(result), args.json)
    return 0
