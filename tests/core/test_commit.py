"""What a drawn token does: endings, failures, and commands while a step runs."""

from __future__ import annotations

from typing import Any

import pytest

from pagedd.core.events import Token
from pagedd.core.plan import Sampled, StepPlan, StepResult, TokenLogprobs
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler
from tests.core.symbolic import INVALID
from tests.core.world import World, config


def tokens_of(drawn: list[int], **params: Any) -> list[Token]:
    """The events of one choice whose runner draws ``drawn``, as far as it is asked to."""
    scheduler = Scheduler(config(), key=b"k")
    sampling = SamplingParams(**({"max_tokens": 9} | params))
    scheduler.submit(Request(1, (5, 6), sampling), 0.0)
    events: list[Token] = []
    for token in drawn:
        plan = scheduler.plan(0.0)
        if plan is None:
            break
        scheduler.commit(plan, StepResult((Sampled(plan.chunks[0].slot, token),)), 0.0)
        events += scheduler.take_events().tokens
    return events


def endings(drawn: list[int], **params: Any) -> tuple[int, str | None, int | None]:
    """How many tokens, and how the last one ended the choice."""
    events = tokens_of(drawn, **params)
    assert all(event.finish is None for event in events[:-1])
    return len(events), events[-1].finish, events[-1].stop


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, (3, "stop", None)),
        ({"max_tokens": 2}, (2, "length", None)),
        ({"max_tokens": 3}, (3, "stop", None)),
        ({"ignore_eos": True, "max_tokens": 5}, (5, "length", None)),
        ({"stop_token_ids": (8,)}, (2, "stop", 8)),
        ({"stop_token_ids": (0,)}, (3, "stop", None)),
        ({"stop_token_ids": (0,), "ignore_eos": True}, (3, "stop", 0)),
        ({"stop_token_ids": (9,), "ignore_eos": True}, (5, "stop", 9)),
        ({"stop_token_ids": (8,), "min_tokens": 2}, (2, "stop", 8)),
        ({"stop_token_ids": (8,), "min_tokens": 3}, (3, "stop", None)),
        ({"min_tokens": 4, "max_tokens": 4}, (4, "length", None)),
    ],
)
def test_endings(params: dict[str, object], expected: tuple[int, str, int | None]) -> None:
    assert endings([7, 8, 0, 7, 9, 7, 7, 7, 7], **params) == expected


def test_logprobs_are_handed_through() -> None:
    scheduler = Scheduler(config(), key=b"k")
    scheduler.submit(Request(1, (5,), SamplingParams(max_tokens=1)), 0.0)
    plan = scheduler.plan(0.0)
    assert plan is not None
    logprobs = TokenLogprobs(-0.5, ())
    scheduler.commit(plan, StepResult((Sampled(0, 7, logprobs),)), 0.0)
    assert scheduler.take_events().tokens == [Token(1, 0, 7, logprobs, "length", None)]


def test_invalid_logits_end_that_request_alone() -> None:
    world = World(config())
    bad = world.submit(range(1, 10), seed=INVALID, ignore_eos=True)
    good = world.submit(range(2, 11), seed=1, ignore_eos=True)
    world.run()
    failed = world.stories[bad].failed
    assert failed is not None
    assert (failed.code, failed.detail) == ("invalid_logits", {"index": 0, "position": 11})
    assert len(world.stories[bad].drawn()) == 2
    assert len(world.stories[good].drawn()) == 8
    again = world.submit(range(1, 10), seed=1)
    world.run()
    assert world.stories[again].cached_tokens == 0, "what it computed must not be found"


def test_invalid_logits_end_all_choices() -> None:
    world = World(config())
    bad = world.submit(range(1, 10), n=3, seed=INVALID, ignore_eos=True)
    world.run()
    assert world.stories[bad].failed is not None
    assert world.stories[bad].finished is None


def started(world: World, **params: Any) -> int:
    handle = world.submit(range(1, 10), **({"ignore_eos": True} | params))
    world.step()
    return handle


def test_cancel_while_waiting_running_preempted_and_unknown() -> None:
    world = World(config(max_num_seqs=1))
    running = started(world)
    waiting = world.submit(range(1, 10))
    world.cancel(waiting)
    world.cancel(999)
    world._observe()
    assert world.stories[waiting].finished is not None
    assert world.stories[waiting].started is None
    urgent = world.submit((3, 4), priority=-1)
    world.step()
    assert world.stories[running].away == {0}
    world.cancel(running)
    world.cancel(urgent)
    world.cancel(urgent)
    world._observe()
    world.check_rest()


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_cancel_while_the_step_runs_takes_effect_at_its_commit(n: int, steps: int) -> None:
    world = World(config(max_num_batched_tokens=7))
    handle = world.submit(range(1, 10), n=n, ignore_eos=True)
    for _ in range(steps):
        world.step()

    def others_cannot_have_its_pages() -> None:
        assert world.stories[handle].finished is None
        world.submit(range(50, 60))

    world.step((world.cancel, handle), (others_cannot_have_its_pages,))
    assert world.stories[handle].finished is not None
    world.run()


def test_end_choice_ends_that_choice_only() -> None:
    world = World(config())
    handle = started(world, n=3)
    world.end_choice(handle, 1)
    world._observe()
    world.step((world.end_choice, handle, 0), (world.end_choice, handle, 0))
    world.end_choice(handle, 7)
    world.end_choice(999, 0)
    world.run()
    assert [len(world.stories[handle].drawn(index)) for index in range(3)] == [1, 1, 8]


def test_the_last_choice_that_is_ended_finishes_the_request() -> None:
    world = World(config())
    handle = started(world)
    world.end_choice(handle, 0)
    world._observe()
    finished = world.stories[handle].finished
    assert finished is not None
    assert not finished.cancelled
    assert world.scheduler.idle


def test_choices_ended_before_the_fork_draw_nothing() -> None:
    world = World(config(max_num_batched_tokens=5))
    handle = started(world, n=3)
    for index in (0, 2, 2, 9):
        world.end_choice(handle, index)
    world.run()
    assert [len(world.stories[handle].drawn(index)) for index in range(3)] == [0, 8, 0]


def test_all_choices_ended_before_the_fork() -> None:
    world = World(config(max_num_batched_tokens=5))
    handle = started(world, n=2)
    world.step((world.end_choice, handle, 0))
    other = started(world, n=2)
    for index in (0, 1):
        world.end_choice(other, index)
    world._observe()
    assert world.stories[other].finished is not None
    world.run()


def test_plans_and_commits_alternate() -> None:
    world = World(config())
    world.submit((1, 2))
    plan = world.scheduler.plan(0.0)
    assert plan is not None
    with pytest.raises(AssertionError, match="not committed"):
        world.scheduler.plan(0.0)
    with pytest.raises(AssertionError, match="committed once"):
        world.scheduler.commit(StepPlan(0, (), (), (), (), (), (), ()), StepResult(()), 0.0)
