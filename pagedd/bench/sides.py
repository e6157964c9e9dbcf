"""Two sides under the same load, in turns: medians and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pagedd.bench.report import remarks, subject

# What is compared: its name, where it is in a result, and whether more of it is better.
MEASURES = (
    ("output tokens/s", ("output_tokens_per_s",), True),
    ("time to first token p50, ms", ("ttft_ms", "p50"), False),
    ("time to first token p99, ms", ("ttft_ms", "p99"), False),
    ("between tokens p50, ms", ("inter_token_ms", "p50"), False),
    ("between tokens p99, ms", ("inter_token_ms", "p99"), False),
    ("end to end p50, ms", ("end_to_end_ms", "p50"), False),
)
SEED_STEP = 1000  # between the seeds of two turns: a prefix cache knows nothing of the next prompts


def compare(names: Sequence[str], turns: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Everything that ``--json`` prints. ``turns`` holds a result for each of the two names.

    A ratio says how many times better the first side is, whichever way better lies; each is the
    median of the turns' own. None: nothing was measured.
    """
    rows = []
    for what, path, more in MEASURES:
        pairs = [[_value(result, path) for result in turn] for turn in turns]
        whole = [(a, b) for a, b in pairs if a and b]
        rows.append(
            {
                "measure": what,
                "medians": [_median([pair[side] for pair in pairs]) for side in (0, 1)],
                "ratio": _median([a / b if more else b / a for a, b in whole]),
            }
        )
    return {
        "names": list(names),
        "turns": [list(turn) for turn in turns],
        "rows": rows,
        "failed": sum(result["failed"] for turn in turns for result in turn),
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """Lines of text: who, under which load, the numbers, and what to know of them."""
    first = result["turns"][0]
    load, same = first[0]["workload"], all(a["load_id"] == b["load_id"] for a, b in result["turns"])
    unit = "words" if load["text"] else "tokens"
    pace = (
        f"{load['concurrency']} at a time"
        if load["concurrency"] is not None
        else f"{load['request_rate']:g} a second"
    )
    count = len(result["turns"])
    width = max(12, *(len(name) + 2 for name in result["names"]))
    heads = [*result["names"], "better by"]
    lines = [
        *(f"{name}: {subject(each)}" for name, each in zip(result["names"], first, strict=True)),
        f"{load['num_requests']} requests of {load['input_len']} {unit} in and "
        f"{load['output_len']} tokens out on average, {pace}; "
        + ("the same on both sides" if same else "NOT the same on both sides"),
        f"{count} {'turn' if count == 1 else 'turns'} of each side; medians",
        "",
        f"  {'':<28}" + "".join(f"{head:>{width}}" for head in heads),
    ]
    for row in result["rows"]:
        cells = [_cell(value, ".1f") for value in row["medians"]] + [
            _cell(row["ratio"], ".2f", "×")
        ]
        lines.append(f"  {row['measure']:<28}" + "".join(f"{cell:>{width}}" for cell in cells))
    for side, name in enumerate(result["names"]):
        said = {remark for turn in result["turns"] for remark in remarks(turn[side])}
        lines += [f"  {name}: {remark}" for remark in sorted(said)]
    return lines


def _value(result: dict[str, Any], path: Sequence[str]) -> float | None:
    value: Any = result
    for key in path:
        if value is None:
            return None
        value = value[key]
    return float(value)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _cell(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
