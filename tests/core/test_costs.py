"""Costs: what is learned from steps, what a preemption costs, and how auto finds the truth."""

from __future__ import annotations

import pytest

from pagedd.core.costs import (
    MOST,
    PRIOR_BYTE_SECONDS,
    PRIOR_STEP_SECONDS,
    PRIOR_TOKEN_SECONDS,
    TRIAL_SHARE,
    WEIGHT,
    Costs,
)
from pagedd.core.memory import Memory
from pagedd.core.plan import Chunk, StepPlan
from pagedd.core.request import Request, SamplingParams
from pagedd.core.sequence import Group, Sequence

PAGE_BYTES = 1000


def step(*lengths: int, draws: bool = True) -> StepPlan:
    """A plan of chunks of these lengths."""
    chunks = tuple(Chunk(slot, 0, n, (slot,) if draws else ()) for slot, n in enumerate(lengths))
    return StepPlan(0, (), (), (), (), (), (), chunks)


class Bench:
    """One sequence of three pages of four tokens, eleven of them computed."""

    def __init__(self, mode: str = "auto", num_host_pages: int = 20) -> None:
        self.memory = Memory(20, 4, b"k", True, num_host_pages=num_host_pages)
        self.costs = Costs(self.memory, mode, PAGE_BYTES)
        self.sequence = self.computed(range(1, 13), 11)

    def computed(self, tokens: range, count: int) -> Sequence:
        request = Request(0, tuple(tokens), SamplingParams(max_tokens=9))
        sequence = Group(request, 0, 0.0, frozenset(), 99).sequences[0]
        self.memory.adopt(sequence, self.memory.hits(sequence), 0.0)
        self.memory.extend(sequence, count, [], 0.0)
        sequence.num_computed = count
        self.memory.register(sequence)
        self.memory.settle()
        return sequence

    def page_seconds(self) -> float:
        return PAGE_BYTES * self.costs.byte_seconds


def test_a_prefill_alone_teaches_its_cost_and_one_beside_decodes_what_it_adds() -> None:
    costs = Bench().costs
    for _ in range(60):
        costs.learn(step(1, 1), {"build": 0.01, "execute": 0.03, "sample": 0.01, "swap": 9.0})
    assert costs.step_seconds == pytest.approx(0.05)
    assert costs.token_seconds == PRIOR_TOKEN_SECONDS
    for _ in range(60):
        costs.learn(step(100), {"build": 9.0, "execute": 0.1, "sample": 0.1})
    assert costs.token_seconds == pytest.approx(0.002)
    for _ in range(60):
        costs.learn(step(1, 1, 50), {"execute": 0.1, "sample": 0.1})
    assert costs.token_seconds == pytest.approx(0.003)  # 0.15 s for 50 tokens
    for _ in range(60):
        costs.learn(step(1, 1, 10), {"execute": 0.05, "sample": 0.01})
    assert costs.token_seconds == pytest.approx(0.003)  # at least half of the step is its own


def test_a_step_that_says_nothing_teaches_nothing() -> None:
    costs = Bench().costs
    costs.learn(step(100, draws=False), {"execute": 50.0})
    costs.learn(step(1, draws=False), {"execute": 50.0})
    costs.learn(step(1, 1, 1, 2), {"execute": 50.0})
    costs.learn(step(1), {"swap": 50.0})
    costs.learn(step(1), {}, copied=3)
    assert costs.token_seconds == PRIOR_TOKEN_SECONDS
    assert costs.byte_seconds == PRIOR_BYTE_SECONDS
    assert costs.step_seconds == PRIOR_STEP_SECONDS


def test_copies_teach_what_a_byte_costs() -> None:
    costs = Bench().costs
    for _ in range(60):
        costs.learn(step(1), {"swap": 0.006}, copied=3)
    assert costs.byte_seconds == pytest.approx(2e-6)


def test_one_slow_measurement_moves_an_average_only_so_far() -> None:
    costs = Bench().costs
    costs.learn(step(1), {"swap": 50.0}, copied=1)
    costs.learn(step(100), {"execute": 1e4, "sample": 0.0})
    costs.learn(step(1), {"execute": 50.0, "sample": 0.0})
    most = 1 + WEIGHT * (MOST - 1)
    assert costs.byte_seconds == pytest.approx(most * PRIOR_BYTE_SECONDS)
    assert costs.token_seconds == pytest.approx(most * PRIOR_TOKEN_SECONDS)
    assert costs.step_seconds == pytest.approx(most * PRIOR_STEP_SECONDS)


def test_a_swap_costs_what_it_copies() -> None:
    bench = Bench("swap")
    costs, memory, sequence = bench.costs, bench.memory, bench.sequence
    assert costs.swap(sequence) == pytest.approx(6 * bench.page_seconds())
    twin = bench.computed(range(1, 10), 9)
    assert len(twin.table) == 3
    assert memory.pool.counts.shared == 2
    # Out go all three; back comes the last one, because the others have another holder.
    assert costs.swap(sequence) == pytest.approx(4 * bench.page_seconds())
    assert costs.recompute(sequence) == pytest.approx(3 * costs.token_seconds)
    assert costs.choose(sequence)[4:] == (3, 20)


def test_what_is_in_host_memory_already_is_not_counted_again() -> None:
    bench = Bench("swap")
    twin = bench.computed(range(1, 10), 9)
    bench.memory.save(twin)
    bench.memory.release(twin, 0.0)
    assert bench.costs.choose(bench.sequence)[4:] == (1, 17)
    assert bench.costs.swap(bench.sequence) == pytest.approx(4 * bench.page_seconds())


@pytest.mark.parametrize(
    ("mode", "num_host_pages", "cost"),
    [("swap", 3, "swap"), ("swap", 2, "recompute"), ("recompute", 3, "recompute")],
)
def test_the_cost_of_a_page_freed_is_that_of_the_way_that_is_open(
    mode: str, num_host_pages: int, cost: str
) -> None:
    bench = Bench(mode, num_host_pages)
    expected = getattr(bench.costs, cost)(bench.sequence) / 3
    assert bench.costs.per_page_freed(bench.sequence) == pytest.approx(expected)


def test_auto_takes_the_quicker_way() -> None:
    bench = Bench()
    bench.costs.token_seconds = bench.page_seconds()
    choice = bench.costs.choose(bench.sequence)
    assert choice[:2] == ("swap", "estimate")
    assert choice.swap_s < choice.recompute_s
    bench.costs.token_seconds = bench.page_seconds() / 10
    choice = bench.costs.choose(bench.sequence)
    assert choice[:2] == ("recompute", "estimate")
    assert choice.swap_s > choice.recompute_s


class History(Bench):
    """``auto`` that knows the truth: a swap takes ``ratio`` times as long as to compute again."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.byte_truth = 1e-8
        self.token_truth = 6 * PAGE_BYTES * self.byte_truth / 11 / ratio
        self.costs.byte_seconds, self.costs.token_seconds = self.byte_truth, self.token_truth

    def preempt(self, slower: float = 1.0) -> str:
        """One preemption, a copy measured as so much slower when it swaps; the way it took.

        Somebody's prompt is computed meanwhile.
        """
        mode = self.costs.choose(self.sequence).mode
        if mode == "swap":
            seconds = 6 * PAGE_BYTES * self.byte_truth * slower
            self.costs.learn(step(1), {"swap": seconds}, copied=6)
        self.costs.learn(step(11), {"execute": 11 * self.token_truth, "sample": 0.0})
        return mode


@pytest.mark.parametrize(
    ("ratio", "within"),
    [(0.05, 0), (0.5, 0), (0.6, 10), (0.7, 10), (0.8, 20), (0.9, 32), (0.95, 32)],
)
def test_auto_comes_back_after_one_measurement_that_was_too_slow(ratio: float, within: int) -> None:
    """It was 50 times too slow. Where the two ways differ most, ``auto`` does not even leave."""
    history = History(ratio)
    assert history.preempt(slower=50) == "swap"
    took = [history.preempt() for _ in range(200)]
    assert took[within:] == ["swap"] * (200 - within)


@pytest.mark.parametrize("ratio", [0.05, 0.5, 0.9, 0.95])
@pytest.mark.parametrize("slow", [3, 30])
def test_auto_comes_back_after_a_time_in_which_all_copies_were_slow(
    ratio: float, slow: int
) -> None:
    history = History(ratio)
    for _ in range(slow):
        history.preempt(slower=50)
    took = [history.preempt() for _ in range(200)]
    assert took[80:] == ["swap"] * 120


def test_a_wrong_estimate_whatever_it_is_is_tried_in_the_end() -> None:
    history = History(0.5)
    history.costs.byte_seconds *= 50  # 25 times what it takes to compute again
    first = [history.preempt() for _ in range(300)].index("swap") + 1
    assert first == pytest.approx(25 / TRIAL_SHARE, abs=1)


@pytest.mark.parametrize("ratio", [1.05, 1.5, 3.0, 20.0])
def test_trials_of_the_slower_way_cost_a_bounded_share(ratio: float) -> None:
    history = History(ratio)
    swaps = [history.preempt() for _ in range(1000)].count("swap")
    assert swaps * ratio <= TRIAL_SHARE * 1000
    assert swaps >= 1000 // (ratio / TRIAL_SHARE + 2)
    reasons = {history.costs.choose(history.sequence).reason for _ in range(200)}
    assert reasons == {"estimate", "trial"}


def test_what_others_measure_makes_a_trial_needless() -> None:
    history = History(0.5)
    assert {history.preempt() for _ in range(100)} == {"swap"}
    history = History(2.0)
    for _ in range(100):
        assert history.preempt() == "recompute"
        history.costs.learn(step(1), {"swap": PAGE_BYTES * history.byte_truth}, copied=1)
