"""Times as words: how long, how long ago, how long until."""

from __future__ import annotations

import math
import time

# Below so many seconds a unit is used; how many of its parts make a second.
_UNITS = ((1.0, "ms", 1000.0), (60.0, "s", 1.0), (3600.0, "min", 1 / 60), (math.inf, "h", 1 / 3600))


def duration(seconds: float) -> str:
    """Two units at most: 2 h 5 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(seconds: float) -> str:
    """How long ago something was: 340 ms ago, 12.4 s ago, 2 min 5 s ago."""
    if not math.isfinite(seconds):
        return "at some time"
    if seconds < 0.0005:
        return "now"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms ago"
    if seconds < 59.95:
        return f"{seconds:.1f} s ago"
    return f"{duration(seconds)} ago"


def span(low_ms: float, high_ms: float) -> str:
    """An estimated range, in two digits or so: 2 to 9.4 s, 0.7 to 1.2 s, 40 s to 3 min.

    "about 2 s" when both ends are written alike, "at most 2 s" when the lower one is nothing.
    """
    if not (math.isfinite(low_ms) and math.isfinite(high_ms)):
        return "an unknown time"
    low, high = sorted((max(low_ms, 0.0) / 1000, max(high_ms, 0.0) / 1000))
    high_text, unit = _part(high)
    low_text, low_unit = _part(low)
    if (low_unit, unit) == ("ms", "s"):
        low_text, low_unit = f"{low:.1f}".removesuffix(".0"), "s"
    if float(low_text) == 0:
        return "no time" if float(high_text) == 0 else f"at most {high_text} {unit}"
    if low_unit != unit:
        return f"{low_text} {low_unit} to {high_text} {unit}"
    if low_text == high_text:
        return f"about {high_text} {unit}"
    return f"{low_text} to {high_text} {unit}"


def clock(at: float) -> str:
    """Seconds since 1970 as the local time of day: HH:MM:SS.mmm."""
    try:
        whole, thousandths = divmod(round(at * 1000), 1000)
        local = time.localtime(whole)
    except (ValueError, OverflowError, OSError):
        return "--:--:--.---"
    return f"{time.strftime('%H:%M:%S', local)}.{thousandths:03d}"


def _part(seconds: float) -> tuple[str, str]:
    """A number of two digits or so, and its unit."""
    # a little below the bound rounding would make it 60 s already, or 1000 ms
    unit, factor = next(
        (unit, factor) for bound, unit, factor in _UNITS if seconds < bound * (1 - 0.5 / 60)
    )
    value = float(f"{seconds * factor:.2g}") if unit == "ms" else seconds * factor
    if value < 9.95 and unit != "ms":
        return f"{value:.1f}".removesuffix(".0"), unit
    return f"{value:.0f}", unit
