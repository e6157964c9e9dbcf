"""The load that is too large for its pool, the order of the runs, medians and the last line."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd import protocol
from pagedd.bench.drive import DaemonRun
from pagedd.bench.preemption import (
    LONG_TO_SHORT,
    MODES,
    REFERENCE,
    Setting,
    Shortage,
    auto_to_better,
    figures,
    schedule,
    settings,
    summarise,
    table,
)
from tests.bench.runs import run, trace

POLICIES = ("length", "arrival")
SEEDS = range(3)


def load(**changes: Any) -> Shortage:
    values = {"num_requests": 16, "input_len": 24, "output_len": 80, "page_size": 16}
    return Shortage(**(values | changes))


def measured(seconds: float, swap: int = 0, answer: int = 7, gap: float = 0.01) -> DaemonRun:
    """One request of 100 tokens."""
    one = trace(0, [answer] * 100, gaps=[0.01] * 98 + [gap])
    return run([one], seconds=seconds, preemptions=protocol.PreemptionCounts(swap, 1))


def test_every_other_request_is_longer() -> None:
    lengths = load().lengths(0)
    means = [[sum(each) / 8 for each in zip(*lengths[kind::2], strict=True)] for kind in (0, 1)]
    assert means == [[12, 40], [36, 120]]
    assert 36 / 12 == 120 / 40 == LONG_TO_SHORT


@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 60), st.integers(1, 64))
def test_the_small_pool_holds_each_request_and_the_large_one_all(
    num_requests: int, input_len: int, output_len: int, page_size: int
) -> None:
    shortage = load(
        num_requests=num_requests, input_len=input_len, output_len=output_len, page_size=page_size
    )
    small, large = shortage.pools(SEEDS)
    assert small <= large
    for seed in SEEDS:
        items = shortage.items(1000, seed)
        assert [(len(item.prompt), item.output_len) for item in items] == shortage.lengths(seed)
        pages = [-(-(len(item.prompt) + item.output_len) // page_size) for item in items]
        assert max(pages) <= small
        assert sum(pages) <= large
        assert all(item.prompt and item.output_len >= 1 for item in items)


def test_pages_that_were_asked_for_are_taken() -> None:
    assert load(num_pages=33).pools(SEEDS)[0] == 33
    assert load(num_pages=33).pools(SEEDS)[1] == load().pools(SEEDS)[1]


def test_each_setting_runs_once_a_seed_forth_and_back() -> None:
    order = schedule(POLICIES, SEEDS)
    assert Counter(order) == dict.fromkeys(
        ((seed, setting) for seed in SEEDS for setting in settings(POLICIES)), 1
    )
    turns = [[setting for seed, setting in order if seed == turn] for turn in SEEDS]
    assert turns[0] == turns[1][::-1] == turns[2] == settings(POLICIES)
    assert turns[0][0] == REFERENCE


def test_gaps_are_of_all_requests_and_counters_of_the_run() -> None:
    found = figures(measured(4.0, swap=5, gap=0.5), measured(2.0))
    assert found["output_tokens_per_s"] == pytest.approx(25)
    assert found["most_gap_ms"] == pytest.approx(500)
    assert 10 <= found["p99_gap_ms"] < 500
    assert (found["preemptions_swap"], found["preemptions_recompute"]) == (5, 0)
    assert found["same_answers"] == 1
    assert figures(measured(4.0, answer=8), measured(2.0))["same_answers"] == 0


def rows(**speeds: float) -> list[dict[str, Any]]:
    return [
        {"policy": "length", "mode": mode, "output_tokens_per_s": speed}
        for mode, speed in speeds.items()
    ]


def test_auto_is_compared_with_the_better_mode_of_its_policy() -> None:
    reference = {"policy": None, "mode": None, "output_tokens_per_s": 900.0}
    both = [reference, *rows(swap=80.0, recompute=100.0, auto=95.0)]
    assert auto_to_better(both) == {"length": pytest.approx(0.95)}
    assert auto_to_better(rows(swap=50.0, recompute=25.0, auto=60.0)) == {
        "length": pytest.approx(1.2)
    }


def result(**slow: float) -> dict[str, Any]:
    """All settings in 4 s but for what ``slow`` says of a mode; the large pool in 2 s."""
    runs = {
        setting: [measured(seconds, swap=2) for seconds in (1.0, slow.get(setting.mode, 4.0), 9.0)]
        for setting in settings(POLICIES)
        if setting.mode is not None
    }
    return summarise(load(), SEEDS, {REFERENCE: [measured(2.0)] * 3, **runs})


def test_a_row_is_the_median_of_its_runs_beside_the_large_pool() -> None:
    found = result(recompute=5.0)
    assert [Setting(row["policy"], row["mode"]) for row in found["rows"]] == settings(POLICIES)
    free, swap, recompute, _ = found["rows"][:4]
    assert (free["seconds"], swap["seconds"], recompute["seconds"]) == (2.0, 4.0, 5.0)
    assert swap["of_reference"] == pytest.approx(0.5)
    assert len(swap["runs"]) == 3
    assert found["auto_to_better"] == {"length": pytest.approx(1), "arrival": pytest.approx(1)}
    assert found["workload"]["seeds"] == [0, 1, 2]


def test_the_table_has_a_row_for_each_setting_and_ends_with_auto() -> None:
    lines = table(result(auto=5.0))
    found = [line.split()[:2] for line in lines if re.match("  (none|length|arrival)", line)]
    expected = [["none:", "all"]] + [[policy, mode] for policy in POLICIES for mode in MODES]
    assert found == expected
    assert lines[-1].endswith("length 0.80, arrival 0.80")
    assert max(len(line) for line in lines) < 110


def test_failures_and_their_reasons_are_told() -> None:
    failed = run([trace(0, ended=None, error="no page left", ledger=None)])
    runs = {setting: [failed] for setting in settings(POLICIES)}
    found = summarise(load(), range(1), runs)
    assert found["failed"] == len(settings(POLICIES))
    assert table(found)[-1] == "error: no page left"
