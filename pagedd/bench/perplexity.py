"""The table of what each form of the weights costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(result: Mapping[str, Any]) -> list[str]:
    """The result of ``pagedd bench perplexity`` as lines of text."""
    return [
        f"{result['model']}: {result['tokens']:,} tokens in windows of {result['window']}, "
        f"of which the last {result['stride']} count",
        "",
        *rows_table(result["rows"]),
    ]


def rows_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each form; differences are those from the first."""
    head = (
        f"  {'dtype':<10}{'weights':<9}{'MB':>7}{'perplexity':>12}{'difference':>12}"
        f"{'std. error':>12}"
    )
    return [head, *(_line(row, first=row is rows[0]) for row in rows)]


def _line(row: Mapping[str, Any], *, first: bool) -> str:
    apart = "" if first else f"{row['change']:>+12.2%}{row['error']:>12.2%}"
    return (
        f"  {row['dtype']:<10}{row['weights']:<9}{row['bytes'] / 1e6:>7.0f}"
        f"{row['perplexity']:>12.3f}{apart}"
    )
