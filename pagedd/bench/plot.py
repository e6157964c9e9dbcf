"""``pagedd bench scaling`` as a picture: ``python -m pagedd.bench.plot DATA.json PICTURE.png``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from pagedd.bench.scaling import GAIN, scheduling
from pagedd.errors import PageddError

# Okabe and Ito's colours, which the colour-blind tell apart.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#999999"
BUDGET_US = 1000.0  # for scheduler and batch building


def blank() -> Any:
    """An empty figure. Errors: ``PageddError`` without matplotlib, which only a plot needs."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PageddError(f"a plot needs matplotlib: {error}") from error
    return Figure(figsize=(13, 4.2), layout="constrained")


def draw(result: dict[str, Any], where: str) -> None:
    """Three panels: throughput, step time by context, and the step outside the model.

    Errors: see ``blank``; ``PageddError`` also if it cannot be written, or not in that format.
    """
    figure = blank()
    throughput, contexts, outside = figure.subplots(1, 3)
    _throughput(throughput, result)
    _contexts(contexts, result)
    _outside(outside, result)
    daemon = result["daemon"]
    figure.suptitle(f"{daemon['model']}, {daemon['device']}, {daemon['dtype']}")
    try:
        figure.savefig(where, dpi=110)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PageddError(f"{where} cannot be written: {reason}") from error


def _throughput(axes: Any, result: dict[str, Any]) -> None:
    points, knee = result["concurrency"], result["knee"]
    at_once = [point["concurrency"] for point in points]
    axes.plot(at_once, [point["tokens_per_s"] for point in points], "o-", color=BLUE)
    axes.axvline(knee, color=GREY, linestyle="--")
    label = f" --max-num-seqs {knee}\n (last doubling with +{GAIN:.0%})"
    axes.text(knee, axes.get_ylim()[0], label, color=GREY, va="bottom", ha="right")
    _doublings(axes, at_once, "requests at once", "tokens/s")
    right = axes.twinx()
    right.plot(at_once, [point["inter_token_ms"] for point in points], "s:", color=ORANGE)
    right.set_ylabel("mean ms between tokens", color=ORANGE)
    right.set_ylim(bottom=0)


def _contexts(axes: Any, result: dict[str, Any]) -> None:
    points = result["context"]
    lengths = [point["context"] for point in points]
    axes.plot(lengths, [point["step_ms"] for point in points], "o-", color=BLUE)
    _doublings(axes, lengths, "tokens of context, one request", "ms a step")


def _outside(axes: Any, result: dict[str, Any]) -> None:
    points = result["outside"]
    counts = [point["sequences"] for point in points]
    whole = [sum(value for name, value in p.items() if name != "sequences") for p in points]
    axes.plot(counts, [scheduling(p) for p in points], "o-", color=BLUE, label="plan+build+commit")
    axes.plot(counts, whole, "s:", color=GREEN, label="with sampling rows and sending")
    axes.axhline(BUDGET_US, color=GREY, linestyle="--", label="budget of the former")
    axes.legend(frameon=False)
    _doublings(axes, counts, "decoding sequences", "CPU µs a step, without the model")


def _doublings(axes: Any, ticks: Sequence[float], what: str, unit: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel(what)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)


def main(argv: Sequence[str]) -> int:
    if len(argv) != 2:
        print("usage: python -m pagedd.bench.plot DATA.json PICTURE.png", file=sys.stderr)
        return 2
    with open(argv[0], encoding="utf-8") as file:
        result = json.load(file)
    try:
        draw(result, argv[1])
    except PageddError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
