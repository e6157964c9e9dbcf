"""The case: what is sent, and how samples and ledgers become what was held and wasted."""

from __future__ import annotations

from typing import Any

import pytest

from pagedd import protocol
from pagedd.bench.case46 import Case, compare, look, side, table
from tests.bench.runs import ledger, run, trace
from tests.cli.fake_daemon import status

CASE = Case()


def look_at(running: int, owned: int, unused: int, shared: int = 0) -> protocol.Status:
    pages = protocol.PageCounts(100, 100 - owned - shared, 0, owned, shared)
    requests = protocol.RequestCounts(running, 0, 0, 0, 0, 0)
    return status(page_size=32, pages=pages, requests=requests, unused_slots=unused)


def test_the_case_is_twenty_requests_of_exactly_two_hundred_tokens_on_average() -> None:
    items = CASE.items(1000, 7)
    answers = [item.output_len for item in items]
    assert len(items) == 20
    assert sum(answers) == 20 * 200
    assert min(answers) >= 150
    assert max(answers) <= 250
    assert len(set(answers)) > 10
    assert sum(len(item.prompt) for item in items) == 20 * 16
    assert all(50 <= token < 950 for item in items for token in item.prompt)


def test_the_work_is_more_than_the_pool_and_a_reservation_fits_once() -> None:
    work = sum(len(item.prompt) + item.output_len for item in CASE.items(1000, 0))
    assert work > CASE.slots == 3200
    assert CASE.reservations == 1


def test_a_seed_is_one_load() -> None:
    assert CASE.items(1000, 1) == CASE.items(1000, 1)
    assert CASE.items(1000, 1) != CASE.items(1000, 2)


def test_what_pages_hold_without_a_token_is_what_the_daemon_counts() -> None:
    assert look(look_at(3, owned=9, shared=1, unused=40), None) == (3, 320, 40)


def test_what_a_reservation_holds_without_a_token_is_all_but_the_tokens() -> None:
    # two pages with ten empty slots: 54 tokens of 2048
    assert look(look_at(1, owned=2, unused=10), 2048) == (1, 2048, 2048 - 54)


def test_a_side_is_the_mean_of_its_samples_weighted_by_what_they_hold() -> None:
    looks = [look_at(4, 10, 32), look_at(1, 2, 20), look_at(0, 0, 0)]
    found = side(run([trace()], looks), None)
    assert found["samples"] == 2  # nothing runs in the last one
    assert found["running"]["most"] == 4
    assert found["unused_share"] == pytest.approx(52 / (12 * 32))
    assert found["unused_slots_per_sequence"] == {"mean": pytest.approx((8 + 20) / 2), "most": 20}


def test_what_ran_and_what_was_held_come_from_the_ledgers() -> None:
    ledgers = [
        ledger(queued_ms=9e9, prefill_ms=1000.0, decode_ms=4000.0, page_seconds=30.0),
        ledger(prefill_ms=0.0, decode_ms=10_000.0, preempted_ms=7000.0, page_seconds=50.0),
    ]
    traces = [trace(index, ledger=each) for index, each in enumerate(ledgers)]
    paged = side(run(traces, [look_at(2, 4, 5)], seconds=10.0, page_size=32), None)
    assert paged["running"]["mean"] == pytest.approx(1.5)
    assert paged["held_slots"] == pytest.approx(8 * 32)
    static = side(run(traces, [look_at(2, 4, 5)], seconds=10.0, page_size=32), 2048)
    assert static["held_slots"] == pytest.approx(1.5 * 2048)


def test_counters_are_those_of_the_run_alone() -> None:
    after: dict[str, Any] = {
        "preemptions": protocol.PreemptionCounts(4, 3),
        "recomputed_tokens": 100,
        "swapped_bytes": 2_000_000,
        "num_steps": 250,
    }
    found = side(run([trace()], **after), None)
    before = status()
    assert found["preemptions"] == {"swap": 4, "recompute": 2}
    assert found["recomputed_tokens"] == 100 - before.recomputed_tokens
    assert found["swapped_bytes"] == 2_000_000
    assert found["steps"] == 250


def test_requests_that_failed_are_counted_and_their_reason_is_told() -> None:
    failed = trace(1, ended=None, error="the cache is on fire", ledger=None)
    result = compare(CASE, run([trace(0), failed]), run([trace(0), trace(1)]))
    assert (result["failed"], result["static"]["completed"]) == (1, 1)
    assert "error: the cache is on fire" in table(result)


def test_answers_are_compared_request_by_request() -> None:
    static = run([trace(0, [1, 2]), trace(1, [3, 4]), trace(2, [5])])
    paged = run([trace(2, [5]), trace(1, [3, 9]), trace(0, [1, 2])])
    assert compare(CASE, static, paged)["same_answers"] == 2


def test_ratios_say_how_many_times_better_paging_is() -> None:
    slow = [trace(0, [1] * 10, ledger=ledger(prefill_ms=0.0, decode_ms=20_000.0))]
    fast = [trace(0, [1] * 10, ledger=ledger(prefill_ms=0.0, decode_ms=20_000.0))]
    result = compare(
        CASE,
        run(slow, [look_at(1, 2, 3)], seconds=20.0, num_steps=4000),
        run(fast, [look_at(8, 20, 100)], seconds=2.5, num_steps=500),
    )
    assert result["ratios"] == {
        "running": pytest.approx(8),
        "output_tokens_per_s": pytest.approx(8),
        "steps": pytest.approx(8),
        "seconds": pytest.approx(8),
    }


def test_the_table_has_both_sides_in_columns_and_fits_a_terminal() -> None:
    static = run([trace()], [look_at(1, 2, 10)], num_steps=4000)
    paged = run([trace()], [look_at(20, 90, 300)], num_steps=250)
    lines = table(compare(CASE, static, paged))
    assert max(len(line) for line in lines) < 100
    rows = {line[:34].strip(): line[34:].split() for line in lines if line.startswith("  ")}
    assert rows["of it without a token, share"] == ["97.4%", "10.4%"]
    assert rows["steps"][:2] == ["4,000", "250"]
    assert rows["steps"][2:] == ["16.0", "times", "fewer"]
    assert rows["run at a time"][1:3] == ["(most", "1)"]


def test_a_run_in_which_nothing_came_has_no_ratios() -> None:
    nothing = run([trace(ended=None, error="full", ledger=None)])
    result = compare(CASE, nothing, nothing)
    assert set(result["ratios"].values()) <= {None, 1.0}
    assert "error: full" in table(result)
