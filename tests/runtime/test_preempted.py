"""Nobody can tell from an answer that it was preempted: twelve requests in too few pages."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pagedd.core.policies import POLICIES
from pagedd.core.request import Request, SamplingParams
from tests.runtime.crowd import NUM_PAGES, PAGE_SIZE, PAGES_NEEDED, Crowd
from tests.runtime.harness import TOKEN_SECONDS, Asked, Bench
from tests.tiny.models import build
from tests.tiny.tokenizer import EOS

MODES = ("swap", "recompute", "auto")
# Seconds a page at which copying it out and in takes as long as computing its tokens.
EVEN = TOKEN_SECONDS * PAGE_SIZE / 2
# Rows of a step; steps between two arrivals. When they come apart, each is more urgent than those
# before it: with few rows a step nobody would give way otherwise.
ROUNDS = ((1, 20), (8, 2), (40, 1), (40, 0))
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    return Crowd.of(build("llama", tmp_path_factory.mktemp("tiny") / "llama"))


def rise(order: list[int]) -> list[int]:
    """The priority of each request, when who comes later is more urgent."""
    return [-order.index(which) for which in range(len(order))]


def test_the_load_is_what_it_says(crowd: Crowd) -> None:
    huge = Bench(crowd.loaded, num_pages=PAGES_NEEDED, page_size=PAGE_SIZE, prefix_cache=False)
    crowd.serve(huge)
    assert huge.preemptions == 0
    assert sum(end.ledger.pages_peak for end in huge.finished.values()) == PAGES_NEEDED
    assert PAGES_NEEDED > 2 * NUM_PAGES


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("mode", MODES)
def test_every_request_gives_way_again_and_again(crowd: Crowd, mode: str, part: int) -> None:
    """Every policy and step size, half of them with the prefix cache; part 1: the other half.

    `auto` begins with what seems quicker, and learns better.
    """
    times: Counter[int] = Counter()
    modes: Counter[str] = Counter()
    for turn, policy in enumerate(sorted(POLICIES)):
        for which, (budget, apart) in enumerate(ROUNDS):
            bench = crowd.tight(
                preemption_mode=mode,
                preemption_policy=policy,
                prefix_cache=(which // 2 + turn + part) % 2 == 0,
                max_num_batched_tokens=budget,
                page_seconds=0.8 * EVEN,
                lazy=which % 2 == 0,
            )
            order = crowd.order(3 * turn + which)
            crowd.serve(bench, order=order, apart=apart, priorities=rise(order) if apart else None)
            assert bench.preemptions > 0
            times += bench.preemptions_of(0, len(crowd.requests))
            modes.update(event.mode for event in bench.preempted)
            assert mode != "swap" or bench.scheduler.stats().recomputed_tokens == 0
    assert min(times[which] for which in range(len(crowd.requests))) >= 2, times
    assert set(modes) == ({"swap", "recompute"} if mode == "auto" else {mode})


@pytest.mark.parametrize("turns", [4, pytest.param(12, marks=SLOW)])
@pytest.mark.parametrize("num_host_pages", [96, 20])
@pytest.mark.parametrize(
    ("mode", "lazy", "ahead"),
    [("swap", False, False), ("swap", True, False), ("swap", True, True), ("auto", True, False)],
)
def test_what_both_memories_remember_is_right(
    crowd: Crowd, mode: str, lazy: bool, ahead: bool, num_host_pages: int, turns: int
) -> None:
    """B12: again and again in one pool, so that what was evicted or swapped is found again."""
    bench = crowd.tight(
        preemption_mode=mode,
        num_host_pages=num_host_pages,
        page_seconds=EVEN,
        lazy=lazy,
        ahead=ahead,
    )
    for turn in range(turns):
        crowd.serve(bench, order=crowd.order(turn), apart=turn % 3)
    stats = bench.scheduler.stats()
    assert stats.host_hits > 0
    assert stats.spilled_pages > 0
    assert bench.preemptions >= 10


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize(("mode", "ahead"), [("swap", False), ("swap", True), ("recompute", False)])
def test_who_is_back_before_its_copy_is_complete(
    crowd: Crowd, mode: str, ahead: bool, prefix_cache: bool
) -> None:
    """Slots are short for one step, and pages are not: all go, and are back at once."""
    bench = crowd.tight(
        num_pages=120, preemption_mode=mode, prefix_cache=prefix_cache, lazy=True, ahead=ahead
    )
    slots = bench.shape.max_num_seqs
    params = SamplingParams(max_tokens=1, temperature=0.0)

    def sprint(step: int) -> None:
        if step % 8 == 7:
            for which in range(slots):
                request = Request(1000 + step * slots + which, (which,), params, priority=-1)
                bench.scheduler.submit(request, bench.now)

    crowd.serve(bench, before_step=sprint)
    times = bench.preemptions_of(0, len(crowd.requests))
    assert min(times.values()) >= 2
    assert {each.lack for each in bench.preempted} == {"slots"}


@pytest.mark.parametrize(("page_seconds", "mode"), [(EVEN / 20, "swap"), (EVEN * 20, "recompute")])
def test_auto_learns_which_way_is_quicker(crowd: Crowd, page_seconds: float, mode: str) -> None:
    bench = crowd.tight(preemption_mode="auto", page_seconds=page_seconds)
    for turn in range(4):
        crowd.serve(bench, order=crowd.order(turn))
    later = bench.preempted[len(bench.preempted) // 2 :]
    assert len(later) >= 4
    assert {event.mode for event in later if event.choice_of_mode == "estimate"} == {mode}


SPACES = [0, 1, 9]
BUDGETS = [1, 8, 40]


@pytest.mark.parametrize(
    ("mode", "num_host_pages", "budget"),
    [
        # of three neighbours one is not slow: each mode with each space and with each budget
        pytest.param(mode, space, budget, marks=[SLOW] if (i + j + k) % 3 else [])
        for i, mode in enumerate(["swap", "auto"])
        for j, space in enumerate(SPACES)
        for k, budget in enumerate(BUDGETS)
    ],
)
def test_swap_space_that_is_short_changes_no_answer(
    crowd: Crowd, mode: str, num_host_pages: int, budget: int
) -> None:
    bench = crowd.tight(
        preemption_mode=mode, num_host_pages=num_host_pages, max_num_batched_tokens=budget
    )
    order = crowd.order(num_host_pages)
    apart = {1: 20, 8: 2, 40: 0}[budget]
    crowd.serve(bench, order=order, apart=apart, priorities=rise(order) if apart else None)
    assert bench.preemptions > 0
    if mode == "swap":
        why = {event.choice_of_mode for event in bench.preempted if event.mode == "recompute"}
        assert why == {"no_swap_space" if num_host_pages == 0 else "swap_space_full"}
        assert num_host_pages < 9 or bench.scheduler.stats().preemptions_swap > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"priority_aging": 0.1},
        {"fair_share": True},
        {"priority_aging": 0.2, "fair_share": True},
    ],
    ids=str,
)
def test_other_priorities_on_the_way_change_no_answer(
    crowd: Crowd, mode: str, config: dict[str, object]
) -> None:
    for seed, policy in enumerate(sorted(POLICIES)):
        rng = random.Random(seed)
        bench = crowd.tight(
            preemption_mode=mode, preemption_policy=policy, max_num_batched_tokens=20, **config
        )

        def meddle(step: int, rng: random.Random = rng, bench: Bench = bench) -> None:
            if rng.random() < 0.3:  # also of requests that are over
                handle, priority = rng.randrange(len(crowd.requests)), rng.randrange(-2, 3)
                bench.scheduler.reprioritize(handle, priority, bench.now)

        priorities = [rng.randrange(-2, 3) for _ in crowd.requests]
        order = crowd.order(seed)
        crowd.serve(bench, order=order, apart=2, priorities=priorities, before_step=meddle)
        assert bench.preemptions > 0
        assert {each.aged for each in bench.reprioritized} >= {False}
        assert "priority_aging" not in config or any(each.aged for each in bench.reprioritized)


def preemption_points(bench: Bench, handle: int, num_prompt: int) -> list[int]:
    """How many tokens the request had drawn each time it came back."""
    return [event.tokens - num_prompt for event in bench.resumed if event.handle == handle]


@pytest.mark.parametrize("mode", MODES)
def test_an_end_that_is_forbidden_until_just_after_a_preemption(crowd: Crowd, mode: str) -> None:
    """It wants to end with each token, and may with the first or second after it came back."""
    prompt, _ = crowd.requests[11]
    strangers = [crowd.requests[which] for which in (2, 6, 8)]  # of less than 30 steps

    def serve(min_tokens: int) -> tuple[Bench, list[int], str | None]:
        params = SamplingParams(
            max_tokens=60, min_tokens=min_tokens, temperature=0.0, logit_bias={EOS: 100.0}
        )
        bench = crowd.tight(preemption_mode=mode, max_num_seqs=1)
        asked: list[Asked] = [(prompt, params), *strangers]
        # every 30 steps one that is more urgent takes the only slot
        [outcome], *_ = bench.run(asked, apart=30, priorities=[1, 0, 0, 0])
        return bench, outcome.tokens, outcome.finish

    bench, tokens, _ = serve(50)
    points = [point for point in preemption_points(bench, 0, len(prompt)) if point]
    assert len(points) >= 2
    for point, more in ((point, more) for point in points for more in (0, 1)):
        again, shorter, finish = serve(point + more)
        assert point in preemption_points(again, 0, len(prompt))
        assert shorter == [*tokens[: point + more], EOS]
        assert finish == "stop"
