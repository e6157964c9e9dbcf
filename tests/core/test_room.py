"""What a full queue tells those whom it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from pagedd.core import room
from pagedd.core.request import Request, SamplingParams
from pagedd.core.room import LEAST_MS, MOST_MS
from tests.core.world import World, config, prompt


def refusal(world: World) -> int:
    failed = world.stories[world.submit(prompt(0, 4))].failed
    assert failed is not None
    assert failed.code == "queue_full"
    assert failed.retry_after_ms is not None
    return failed.retry_after_ms


def full(max_tokens: int) -> World:
    """One runs and may draw so many tokens, one waits, and the queue takes no more."""
    world = World(config(max_num_seqs=1, max_queue=1, max_model_len=8192, num_pages=4096))
    world.submit(prompt(1, 4), max_tokens=max_tokens, ignore_eos=True)
    world.step()
    world.submit(prompt(2, 4), max_tokens=4)
    return world


def test_the_wait_grows_with_what_runs_and_stays_in_its_bounds() -> None:
    waits = [refusal(full(max_tokens)) for max_tokens in (5, 1_000, 2_000, 8_000)]
    assert waits == sorted(waits)
    assert waits[0] == LEAST_MS
    assert LEAST_MS < waits[1] < waits[2] < waits[3] == MOST_MS


def test_a_flood_of_refusals_costs_one_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    forecast, asked = room.eta_ms, []

    def counted(*args: Any) -> tuple[float, float]:
        asked.append(args)
        return forecast(*args)

    monkeypatch.setattr(room, "eta_ms", counted)
    world = full(1_000)
    assert len({refusal(world) for _ in range(50)}) == len(asked) == 1


def test_who_was_taken_once_is_taken_again_whatever_the_limit() -> None:
    world = full(5)
    params = SamplingParams(max_tokens=1)
    for handle, again in ((100, True), (101, False)):
        world.scheduler.submit(Request(handle, (1, 2), params), world.now, again=again)
    events = world.scheduler.take_events()
    assert [each.handle for each in events.accepted] == [100]
    assert [each.handle for each in events.failed] == [101]
