"""How long a request will wait or run, against what a simulated clock shows afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from pagedd.core.costs import PRIOR_STEP_SECONDS, PRIOR_TOKEN_SECONDS
from pagedd.core.eta import DEVIATION, LOOK_AHEAD
from pagedd.core.events import Explained
from pagedd.core.lengths import Lengths
from pagedd.core.queue import WaitingQueue
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.core.sequence import Sequence
from tests.core.symbolic import SymbolicRunner
from tests.core.test_explain import explained
from tests.core.world import World, config, prompt

STEP = PRIOR_STEP_SECONDS * 1e3  # ms; the world of the tests reports no other
TOKEN = PRIOR_TOKEN_SECONDS * 1e3


def eta(world: World, handle: int) -> tuple[float, float]:
    found = explained(world, handle).eta_ms
    assert found is not None
    return found


def test_who_is_next_waits_for_one_step_at_most() -> None:
    world = World(config())
    assert eta(world, world.submit(prompt(0, 5))) == (0.0, pytest.approx(STEP * DEVIATION))
    world.run()


def test_who_runs_ends_with_its_last_token_or_before() -> None:
    world = World(config())
    sure = world.submit(prompt(0, 3), max_tokens=21, ignore_eos=True)
    unsure = world.submit(prompt(1, 3), max_tokens=21, min_tokens=5)
    world.step()
    longest = pytest.approx((20 + 1) * STEP * DEVIATION)
    assert eta(world, sure) == (pytest.approx(20 * STEP / DEVIATION), longest)
    assert eta(world, unsure) == (pytest.approx(4 * STEP / DEVIATION), longest)
    world.run()


def test_who_needs_a_slot_waits_for_the_next_end() -> None:
    world = World(config(max_num_seqs=2, max_num_batched_tokens=16))
    for length in (9, 5):
        world.submit(prompt(length, 4), max_tokens=length, ignore_eos=True)
    world.step()
    handles = [world.submit(prompt(2 + i, 4), max_tokens=8, ignore_eos=True) for i in range(4)]
    low = [eta(world, handle)[0] for handle in handles]
    # The slots come free after 4, 8, 4 + 8 and 8 + 8 steps: the first token needs no step more.
    assert low == [pytest.approx(steps * STEP / DEVIATION) for steps in (4, 8, 12, 16)]
    high = [eta(world, handle)[1] for handle in handles]
    assert high == sorted(high)
    assert all(below < above for below, above in zip(low, high, strict=True))
    world.run()


def test_who_needs_pages_waits_until_enough_are_free() -> None:
    world = World(config(num_pages=10, watermark=0.0, prefix_cache=False))
    for which, most in enumerate((4, 8)):
        world.submit(prompt(which, 12), max_tokens=most, ignore_eos=True)
    world.step()
    handle = world.submit(prompt(2, 24), ignore_eos=True)
    assert explained(world, handle).waiting[0].limit == "pages"
    low, high = eta(world, handle)
    assert low == pytest.approx(3 * STEP / DEVIATION)
    assert high >= 3 * STEP
    world.run()


def test_at_worst_everybody_keeps_the_pages_of_its_end() -> None:
    world = World(config(num_pages=8, watermark=0.0, prefix_cache=False))
    for which in range(2):
        world.submit(prompt(which, 4), max_tokens=12, ignore_eos=True)
    world.step()  # at their ends, the two will fill the pool
    _, last = (world.submit(prompt(which, 4)) for which in range(2, 4))
    high = 11 * STEP + 4 * TOKEN + STEP
    assert eta(world, last) == (0.0, pytest.approx(high * DEVIATION))
    world.run()


def test_at_worst_those_ahead_take_the_pages_of_their_ends() -> None:
    world = World(config(num_pages=8, watermark=0.0, prefix_cache=False))
    handles = [world.submit(prompt(which, 4), max_tokens=12, ignore_eos=True) for which in range(3)]
    assert eta(world, handles[1])[1] < 3 * STEP * DEVIATION
    high = 12 * STEP + 2 * 4 * TOKEN + STEP
    assert eta(world, handles[2]) == (0.0, pytest.approx(high * DEVIATION))
    world.run()


def test_a_copy_back_from_host_memory_takes_its_time() -> None:
    def low_and_high(page_bytes: int) -> tuple[float, float]:
        changes = {"num_host_pages": 9, "preemption_mode": "swap", "page_bytes": page_bytes}
        world = World(config(max_num_seqs=1, **changes))
        away = world.submit(prompt(0, 16), priority=1, max_tokens=9, ignore_eos=True)
        world.step()
        world.submit(prompt(1, 4), max_tokens=20, ignore_eos=True)
        last = world.submit(prompt(2, 4), priority=2)
        world.step()
        assert explained(world, away).state == "swapped"
        found = eta(world, last)
        world.run()
        return found

    light, heavy = low_and_high(1), low_and_high(10**9)
    assert heavy[1] > light[1] + 4 * 10**9 / 2e9 * 1e3


def test_what_gives_way_is_not_waited_for() -> None:
    world = World(config(max_num_seqs=2))
    for which in range(2):
        world.submit(prompt(which, 4), priority=1, max_tokens=40, ignore_eos=True)
    world.step()
    urgent = [world.submit(prompt(which, 4), priority=0, max_tokens=6) for which in range(3)]
    assert [eta(world, handle)[1] <= 20 * STEP for handle in urgent] == [True] * 3
    world.run()


def test_a_long_queue_is_not_walked_to_its_end() -> None:
    settings = config(max_queue=20_000, num_pages=60, max_num_batched_tokens=400)
    scheduler = Scheduler(settings, key=b"key")
    for handle in range(10_000):
        scheduler.submit(Request(handle, (handle,) * 4, SamplingParams(max_tokens=8)), 0.0)
    scheduler.plan(0.0)
    looked = Looked(scheduler._state.waiting)
    scheduler._state.waiting = looked  # type: ignore[assignment]
    ranges = []
    for handle in (LOOK_AHEAD // 2, LOOK_AHEAD * 2, LOOK_AHEAD * 20):
        scheduler.explain(handle, 0, 0.0)
        ranges.append(scheduler._state.events.explained.pop().eta_ms)
    assert 0 < looked.count <= 3 * LOOK_AHEAD
    for before, after in pairwise(found for found in ranges if found is not None):
        assert before[0] < after[0]
        assert before[1] < after[1]
    assert None not in ranges


class Looked:
    """A queue that counts what is taken from it."""

    def __init__(self, queue: WaitingQueue) -> None:
        self._queue = queue
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._queue, name)

    def __iter__(self) -> Iterator[Sequence]:
        for sequence in self._queue:
            self.count += 1
            yield sequence


def test_lengths_follow_what_ends() -> None:
    lengths = Lengths()
    assert lengths.least(1) == 0
    for _ in range(40):
        lengths.learn(30)
    assert lengths.least(1) == pytest.approx(30)
    for _ in range(100):
        lengths.learn(50)
        lengths.learn(70)
    assert lengths.mean == pytest.approx(60, abs=2)
    assert lengths.spread == pytest.approx(10, abs=2)
    assert lengths.least(1) == pytest.approx(40, abs=5)
    assert lengths.least(1) < lengths.least(4) < lengths.least(100) < lengths.mean


def test_ended_choices_teach_their_lengths_and_cancelled_ones_do_not() -> None:
    world = World(config())
    for which, most in enumerate((4, 8)):
        world.submit(prompt(which, 3), max_tokens=most, ignore_eos=True)
    cancelled = world.submit(prompt(2, 3), max_tokens=30, ignore_eos=True)
    for _ in range(12):
        world.step()
    world.cancel(cancelled)
    world._observe()
    world.run()
    assert world.scheduler._state.lengths.mean == 6


class Forecasts:
    """Asks a scheduler now and then, and looks later whether the answers were right."""

    def __init__(self, seed: int, priorities: tuple[int, ...]) -> None:
        rng = self.rng = Random(seed)
        self.config = random_config(rng)
        self.scheduler = Scheduler(self.config, key=b"key")
        self.runner = SymbolicRunner(self.config)
        self.priorities = priorities
        self.ends_alone = rng.random() < 0.5
        self.now = 0.0
        self.handles = 0
        self.open: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.step_seconds = rng.uniform(0.002, 0.02)
        self.token_seconds = rng.uniform(0.0001, 0.002)

    def run(self) -> None:
        rng, load = self.rng, self.rng.choice([0.05, 0.2, 0.5])
        for step in range(200):
            if rng.random() < load:
                for _ in range(rng.choice([1, 1, 6])):
                    self.submit()
            if step > 30 and rng.random() < 0.3:
                self.ask()
            self.step()
        while not self.scheduler.idle:
            self.step()

    def submit(self) -> None:
        rng, longest = self.rng, self.config.max_sequence_len
        self.handles += 1
        length = rng.randint(1, longest // 2)
        params = SamplingParams(
            max_tokens=rng.randint(1, longest - length),
            ignore_eos=not self.ends_alone,
            seed=rng.randrange(5),
            n=min(rng.choice([1, 1, 1, 2, 3]), self.config.max_num_seqs),
        )
        tokens = rng.choice([(1, 2, 3, 4) * 16, (7, 0, 7) * 22, tuple(rng.randbytes(64))])[:length]
        priority = rng.choice(self.priorities)
        self.scheduler.submit(Request(self.handles, tokens, params, priority), self.now)
        for key in list(self.open):  # no forecast knows what more urgent requests will come
            if self.scheduler._state.groups[key[0]].priority > priority:
                del self.open[key]

    def ask(self) -> None:
        known = list(self.scheduler._state.groups)
        for handle in self.rng.sample(known, min(3, len(known))):
            self.scheduler.explain(handle, 0, self.now)
            found: Explained = self.scheduler._state.events.explained.pop()
            assert found.eta_ms is not None
            low, high = found.eta_ms
            assert 0 <= low <= high
            key = handle, "end" if found.running else "start"
            self.open.setdefault(key, []).append((self.now, low, high))

    def step(self) -> None:
        plan = self.scheduler.plan(self.now)
        if plan is None:
            self.now += 0.01
            return
        events = self.scheduler.take_events()
        for begun in (*events.started, *events.resumed):
            self.settle(begun.handle, "start")
        took = self.step_seconds + self.token_seconds * plan.num_tokens
        self.now += took
        self.scheduler.commit(plan, self.runner.execute(plan), self.now, {"execute": took})
        for finished in self.scheduler.take_events().finished:
            self.settle(finished.handle, "end")
            self.open.pop((finished.handle, "start"), None)

    def settle(self, handle: int, what: str) -> None:
        for asked, low, high in self.open.pop((handle, what), ()):
            true = (self.now - asked) * 1e3
            hit = low - 1e-6 <= true <= high + 1e-6
            self.outcomes[what, "hit" if hit else "miss"] += 1


def random_config(rng: Random) -> SchedulerConfig:
    page_size, longest = rng.choice([2, 4, 8]), rng.choice([32, 64])
    return config(
        page_size=page_size,
        num_pages=rng.randint(longest // page_size, 4 * longest // page_size),
        max_num_seqs=rng.choice([1, 2, 4, 8]),
        max_num_batched_tokens=rng.choice([16, 32, 64]),
        max_model_len=longest,
        max_queue=1000,
        preemption_policy=rng.choice(["length", "arrival", "cost"]),
        preemption_mode=rng.choice(["swap", "recompute", "auto"]),
        num_host_pages=rng.choice([0, 50]),
        page_bytes=1000,
    )


@pytest.mark.parametrize("priorities", [(0,), (0, 0, 1, 2)], ids=["equal", "mixed"])
def test_what_happens_lies_in_the_range(priorities: tuple[int, ...]) -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    for seed in range(25):
        forecasts = Forecasts(seed, priorities)
        forecasts.run()
        outcomes += forecasts.outcomes
    for what in ("start", "end"):
        hits, misses = outcomes[what, "hit"], outcomes[what, "miss"]
        assert hits + misses >= 400
        assert hits / (hits + misses) >= 0.9, (what, hits, misses)
