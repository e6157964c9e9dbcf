"""Steps, events, accounts and counters, by example."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pagedd.core.events import Accepted, StepEvents
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler
from tests.core.world import World, config


def test_idle_scheduler_plans_nothing() -> None:
    scheduler = Scheduler(config(), key=b"k")
    assert scheduler.idle
    assert scheduler.plan(0.0) is None
    assert not scheduler.take_events()
    scheduler.audit()


def test_decode_comes_first_and_prefill_gets_the_rest() -> None:
    world = World(config(max_num_batched_tokens=6))
    world.submit(range(1, 4), ignore_eos=True)
    world.step()
    world.submit(range(1, 11), max_tokens=1)
    plans = [plan for plan in (world.step(), world.step()) if plan is not None]
    chunks = [[chunk[1:3] for chunk in plan.chunks] for plan in plans]
    assert chunks == [[(3, 1), (0, 5)], [(4, 1), (5, 5)]]
    assert [len(chunk.samples) for chunk in plans[0].chunks] == [1, 0]


def test_what_the_runner_already_knows_is_not_said_again() -> None:
    world = World(config())
    world.submit(range(1, 4), ignore_eos=True, max_tokens=4)
    plans = [world.step() for _ in range(5)]
    assert plans[-1] is None
    first, *rest = [plan for plan in plans if plan is not None]
    assert first.join[0].pages == (0,)
    assert not first.grow
    assert [len(plan.grow) for plan in rest] == [0, 1, 0]
    assert not any(plan.join or plan.leave or plan.copies for plan in rest)


def test_slot_is_left_in_the_next_plan_and_used_again_there() -> None:
    world = World(config(max_num_seqs=1))
    for family in range(2):
        world.submit((family, 5, 6), max_tokens=1)
    world.step()
    plan = world.step()
    assert plan is not None
    assert plan.leave == (0,)
    assert plan.join[0].slot == 0
    world.run()


def test_preempted_sequence_comes_back_with_what_it_drew() -> None:
    world = World(config(max_num_seqs=1))
    low = world.submit(range(1, 7), priority=1, ignore_eos=True)
    for _ in range(3):
        world.step()
    drawn = world.stories[low].drawn()
    world.submit((9, 9), max_tokens=1)
    displaced = world.step()
    assert displaced is not None
    assert displaced.leave == (0,)
    back = world.step()
    assert back is not None
    assert back.join[0].tokens == (*range(1, 7), *drawn)
    assert back.join[0].num_prompt == 6
    assert back.chunks[0].start == 8  # two full pages were still in the cache
    world.run()


def test_events_tell_why() -> None:
    scheduler = Scheduler(config(max_num_seqs=1, prefix_cache=False), key=b"k")
    sampling = SamplingParams(max_tokens=2)

    def step(now: float) -> None:
        plan = scheduler.plan(now)
        assert plan is not None
        scheduler.commit(plan, world_runner.execute(plan), now)

    world_runner = World(config(max_num_seqs=1)).runner
    scheduler.submit(Request(1, (1, 2, 3, 4, 5), sampling, priority=3), 0.0)
    step(0.0)
    scheduler.submit(Request(2, (1,), SamplingParams(max_tokens=1), priority=1), 1.0)
    scheduler.take_events()
    step(1.0)
    (preempted,) = scheduler.take_events().preempted
    assert (preempted.handle, preempted.choice, preempted.priority) == (1, 0, 3)
    assert (preempted.mode, preempted.choice_of_mode) == ("recompute", "no_swap_space")
    assert preempted.pages == 2
    assert (preempted.lack, preempted.taker, preempted.taker_priority) == ("slots", 2, 1)
    step(3.0)
    events = scheduler.take_events()
    (resumed,) = events.resumed
    assert (resumed.handle, resumed.mode) == (1, "recompute")
    assert (resumed.kept, resumed.tokens, resumed.pages) == (0, 6, 2)
    assert not events.started
    (finished,) = events.finished
    assert finished.ledger.preempted_ms == pytest.approx(2000)
    assert finished.ledger.preemptions == 1
    assert finished.ledger.recomputed_tokens == 5
    assert scheduler.stats().recomputed_tokens == 5


@pytest.mark.parametrize("name", [each.name for each in fields(StepEvents)])
def test_any_event_makes_events_true(name: str) -> None:
    events = StepEvents()
    assert not events
    getattr(events, name).append(Accepted(1, 0))
    assert events


def test_ledger_counts_time_by_phase() -> None:
    scheduler = Scheduler(config(max_num_batched_tokens=4), key=b"k")
    runner = World(config(max_num_batched_tokens=4)).runner
    scheduler.submit(
        Request(1, (1, 2, 3, 4, 5), SamplingParams(max_tokens=3, ignore_eos=True)), 10.0
    )
    for planned, committed in ((11.0, 13.0), (13.0, 14.0), (14.0, 18.0), (18.0, 26.0)):
        plan = scheduler.plan(planned)
        assert plan is not None
        scheduler.commit(plan, runner.execute(plan), committed)
    (finished,) = scheduler.take_events().finished
    ledger = finished.ledger
    assert (ledger.queued_ms, ledger.prefill_ms, ledger.decode_ms) == (1000, 3000, 12000)
    assert ledger.page_seconds == 1 * (13 - 11) + 2 * (26 - 13)
    assert (ledger.pages_peak, ledger.preempted_ms, ledger.swapped_bytes) == (2, 0, 0)


def test_shared_pages_count_once_in_the_ledger() -> None:
    world = World(config())
    handle = world.submit(range(1, 9), n=4, max_tokens=2, ignore_eos=True)
    world.run()
    finished = world.stories[handle].finished
    assert finished is not None
    assert finished.ledger.pages_peak == 2 + 4


def test_accepted_tells_the_place_in_the_queue() -> None:
    scheduler = Scheduler(config(), key=b"k")
    for handle, priority in enumerate((0, 0, -1, 0), start=1):
        scheduler.submit(Request(handle, (1,), SamplingParams(max_tokens=1), priority), 0.0)
    accepted = [tuple(event) for event in scheduler.take_events().accepted]
    assert accepted == [(1, 0), (2, 1), (3, 0), (4, 3)]


def test_stats_count_requests_not_choices() -> None:
    world = World(config(max_num_seqs=3))
    world.submit(range(1, 5), n=3, ignore_eos=True)
    world.submit(range(1, 5), ignore_eos=True)
    world.step()
    stats = world.scheduler.stats()
    assert (stats.running, stats.waiting) == (1, 1)
    assert stats.prompt_tokens == 4
    assert stats.generated_tokens == 3
    world.run()


def test_the_last_one_gives_its_own_pages_back_when_it_finds_no_other() -> None:
    scheduler = Scheduler(config(num_pages=4, watermark=0.0), key=b"k")
    runner = World(config(num_pages=4)).runner
    for handle, length in ((1, 5), (2, 7)):
        sampling = SamplingParams(max_tokens=4, ignore_eos=True)
        scheduler.submit(Request(handle, tuple(range(handle, handle + length)), sampling), 0.0)
    for _ in range(2):
        plan = scheduler.plan(0.0)
        assert plan is not None
        scheduler.commit(plan, runner.execute(plan), 0.0)
    assert not scheduler.take_events().preempted
    plan = scheduler.plan(0.0)
    (preempted,) = scheduler.take_events().preempted
    assert (preempted.handle, preempted.pages) == (2, 2)
    assert (preempted.lack, preempted.taker) == ("pages", 2), "not for anybody else"
    assert plan is not None
    assert len(plan.chunks) == 1


def test_watermark_leaves_pages_to_those_that_run() -> None:
    for watermark, starts in ((0.0, True), (0.25, False)):
        world = World(config(num_pages=8, watermark=watermark))
        world.submit(range(1, 13), ignore_eos=True)
        world.step()
        second = world.submit(range(50, 66), max_tokens=1)
        world.step()
        assert (world.stories[second].started is not None) is starts
        world.run()


def test_running_prefills_are_counted_before_another_is_admitted() -> None:
    world = World(config(num_pages=8, max_num_batched_tokens=24))
    world.submit(range(1, 21), max_tokens=1)
    second = world.submit(range(50, 70), max_tokens=1)
    world.step()
    assert world.stories[second].started is None
    world.run()
    assert world.scheduler.stats().preemptions_recompute == 0


def test_snapshot_shows_every_page_and_sequence() -> None:
    world = World(config(num_pages=10, max_num_seqs=3))
    world.submit(range(1, 5), max_tokens=1)
    world.run()
    forked = world.submit(range(20, 26), n=2, ignore_eos=True)
    world.step()
    waiting = world.submit(range(30, 33), n=2, priority=4)
    world.step()
    snapshot = world.scheduler.snapshot()
    counts = snapshot.counters.pages
    assert len(snapshot.cells) == counts.total == 10
    for value, count in enumerate((counts.free, counts.owned, counts.shared, counts.cached)):
        assert snapshot.cells.count(value) == count
    assert (counts.cached, counts.shared, counts.owned) == (1, 1, 2)
    rows = [(r.handle, r.choice, r.state, r.generated, r.computed) for r in snapshot.sequences]
    assert rows == [
        (forked, 0, "decoding", 2, 7),
        (forked, 1, "decoding", 2, 7),
        (waiting, 0, "waiting", 0, 0),
    ]
    assert [row.pages for row in snapshot.sequences] == [2, 2, 0]
    assert sorted(snapshot.owners) == [0] * 7 + [1, 1, 2]
    assert snapshot.sequences[2].waiting_ms == pytest.approx(11)
    assert snapshot.sequences[2].priority == 4
    world.run()
