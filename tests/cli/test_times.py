"""Times as words."""

from __future__ import annotations

import math
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd.cli.times import ago, clock, duration, span


def test_durations() -> None:
    shown = [duration(s) for s in (0.4, 59, 60, 3599, 3600, 86399, 90000)]
    assert shown[:3] == ["0 s", "59 s", "1 min 0 s"]
    assert shown[3:] == ["59 min 59 s", "1 h 0 min", "23 h 59 min", "1 d 1 h"]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (2000, 9400, "2 to 9.4 s"),
        (1990, 2010, "about 2 s"),
        (20, 90, "20 to 90 ms"),
        (104, 326, "100 to 330 ms"),
        (0.2, 0.4, "no time"),
        (450, 1500, "0.5 to 1.5 s"),
        (653, 1240, "0.7 to 1.2 s"),
        (3, 1500, "at most 1.5 s"),
        (960, 1040, "about 1 s"),
        (40_000, 180_000, "40 s to 3 min"),
        (59_700, 61_000, "about 1 min"),
        (0, 300, "at most 300 ms"),
        (0, 0, "no time"),
        (-5, 300, "at most 300 ms"),
        (9400, 2000, "2 to 9.4 s"),
        (3_600_000, 36_000_000, "1 to 10 h"),
        (math.nan, 3, "an unknown time"),
        (3, math.inf, "an unknown time"),
    ],
)
def test_a_range_in_words(low: float, high: float, shown: str) -> None:
    assert span(low, high) == shown


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_range_never_says_sixty_seconds_or_a_thousand_milliseconds(a: float, b: float) -> None:
    shown = span(a, b)
    for number, unit in re.findall(r"([\d.]+) (ms|s|min)\b", shown):
        assert float(number) < (1000 if unit == "ms" else 60)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "now"),
        (-3, "now"),
        (0.34, "340 ms ago"),
        (0.9996, "1.0 s ago"),
        (12.4, "12.4 s ago"),
        (59.96, "59 s ago"),
        (75.25, "1 min 15 s ago"),
        (math.nan, "at some time"),
        (math.inf, "at some time"),
    ],
)
def test_how_long_ago(seconds: float, shown: str) -> None:
    assert ago(seconds) == shown


def test_the_clock_is_local_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        for zone, hour in (("UTC", "22"), ("UTC-2", "00")):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert clock(1_700_000_000.0 - 12.4) == f"{hour}:13:07.600"
    finally:
        monkeypatch.undo()
        time.tzset()
    for at in (math.nan, math.inf, 1e300, -1e300):
        assert clock(at) == "--:--:--.---"
