"""The counters of the last minutes: slots, gaps, rates, bounds."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd.protocol import Counters
from pagedd_tui.series import MINUTES, SLOT_S, Sample, Series

NOTHING = Counters(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, {})
AT = 1000.0


def counters(tokens: float = 0.0, preemptions: int = 0, **phases: float) -> Counters:
    return msgspec.structs.replace(
        NOTHING, tokens_per_second=tokens, preemptions_total=preemptions, step_ms=phases
    )


def tokens(sample: Sample) -> float:
    return sample.tokens


def rate(sample: Sample) -> float:
    return sample.preemptions


def test_what_comes_within_half_a_second_is_one_sample() -> None:
    series = Series()
    added = [series.add(AT + i / 10, counters(i), gap=False) for i in range(10)]
    assert added.count(True) == 2
    assert len(series) == 2
    assert series.columns(tokens, 2, 1) == [4.0, 9.0]


def test_a_rate_is_taken_between_samples() -> None:
    series = Series()
    for i in range(6):
        series.add(AT + i / 2, counters(preemptions=3 * i), gap=False)
    assert series.columns(rate, 6, 1) == [0.0, 6.0, 6.0, 6.0, 6.0, 6.0]
    series.add(AT + 2.7, counters(preemptions=30), gap=False)  # takes the place of the last
    last = series.last
    assert last is not None
    assert last.preemptions == pytest.approx((30 - 12) / 0.7)


def test_no_rate_and_no_line_across_a_gap() -> None:
    series = Series()
    series.add(AT, counters(100, preemptions=5), gap=False)
    series.add(AT + 2, counters(50, preemptions=900), gap=True)
    series.add(AT + 2.1, counters(60, preemptions=901), gap=False)
    assert series.columns(tokens, 5, 1) == [100, None, None, None, 60]
    assert series.columns(rate, 5, 1) == [0, None, None, None, 0]
    series.add(AT + 2.2, counters(1, preemptions=0), gap=True)  # at once again
    assert len(series) == 3
    assert series.columns(tokens, 2, 1) == [60, 1]


def test_a_total_that_falls_is_no_rate() -> None:
    series = Series()
    series.add(AT, counters(preemptions=500), gap=False)
    series.add(AT + 1, counters(preemptions=2), gap=False)
    assert series.columns(rate, 1, 1) == [0]


def test_a_value_holds_while_nothing_comes() -> None:
    series = Series()
    series.add(AT, counters(10), gap=False)
    series.add(AT + 2, counters(20), gap=False)
    assert series.columns(tokens, 6, 1) == [None, 10, 10, 10, 10, 20]
    assert series.columns(tokens, 2, 3) == [10, 20]
    assert series.recent(tokens, 2) == 20


def test_ten_minutes_are_kept() -> None:
    series = Series()
    for i in range(5000):
        series.add(AT + i * SLOT_S, counters(i), gap=False)
    assert series.span_s == MINUTES * 60
    assert series.columns(tokens, 1, 1) == [4999]


def test_a_clock_that_goes_back_begins_anew_and_what_is_no_number_is_zero() -> None:
    series = Series()
    series.add(AT, counters(1), gap=False)
    series.add(AT - 1, counters(2), gap=False)
    assert len(series) == 1
    series.add(AT - 500, counters(math.nan, step=math.inf), gap=False)
    assert len(series) == 1
    assert series.columns(tokens, 1, 1) == [0]
    assert not series.add(math.nan, counters(3), gap=False)


def test_phases_come_in_the_order_of_a_step() -> None:
    series = Series()
    series.add(AT, counters(total=9, zeal=1, commit=1, plan=1), gap=False)
    series.add(AT + 1, counters(execute=1), gap=False)
    assert series.phases() == ["plan", "execute", "commit", "zeal"]


STEPS = st.lists(st.tuples(st.floats(-3, 30), st.booleans(), st.integers(0, 9)), max_size=30)


@given(STEPS, st.integers(1, 12), st.integers(1, 9))
def test_columns_are_means_of_what_was_there(
    steps: list[tuple[float, bool, int]], count: int, slots: int
) -> None:
    series, at = Series(), AT
    values = set()
    for later, gap, value in steps:
        at += later
        values.add(value)
        series.add(at, counters(value), gap)
    columns = series.columns(tokens, count, slots)
    assert len(columns) == count
    known = [column for column in columns if column is not None]
    assert all(min(values) <= column <= max(values) for column in known)
    assert (columns[-1] is not None) == bool(len(series))
