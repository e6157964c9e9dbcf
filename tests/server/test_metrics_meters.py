"""What the metrics measure, with a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd.core.events import (
    Failed,
    Finished,
    Ledger,
    Resumed,
    Started,
    StepEvents,
    Token,
    Waiting,
)
from pagedd.engine.messages import Step
from pagedd.server.metrics_histogram import GAP_S, Histogram
from pagedd.server.metrics_requests import RequestMeter
from pagedd.server.metrics_steps import StepMeter
from tests.engine.parts import NO_STATS

LEDGER = Ledger(400.0, 300.0, 1500.0, 250.0, 2, 7, 9.0, 5, 64)


def request(
    handle: int, arrived: float, *, counts: list[int], reasons: list[str | None] | None = None
) -> Any:
    """What the meter needs of an OpenRequest."""
    return SimpleNamespace(
        handle=handle,
        arrived=arrived,
        finish_reasons=reasons or ["length"] * len(counts),
        token_counts=counts,
        who=SimpleNamespace(choices=len(counts), prompt_tokens=10),
        past=SimpleNamespace(ledger=lambda ledger: ledger),
        core=SimpleNamespace(params=SimpleNamespace(max_tokens=30)),
    )


class Meter(RequestMeter):
    """Told the time."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now)

    def drawn(self, now: float, *tokens: tuple[int, int]) -> None:
        self.now = now
        self.tokens([Token(handle, choice, 5) for handle, choice in tokens])


@given(st.lists(st.floats(0.0, 100.0), max_size=50))
def test_a_bucket_holds_what_does_not_exceed_its_bound(values: list[float]) -> None:
    histogram = Histogram(GAP_S)
    for value in values:
        histogram.observe(value)
    for bound, count in histogram.buckets():
        limit = float(bound.replace("+Inf", "inf"))
        assert count == sum(value <= limit for value in values)
    assert histogram.sum == pytest.approx(sum(values))
    assert histogram.count == len(values)


def test_times_count_from_the_arrival_and_gaps_from_the_token_before() -> None:
    meter = Meter()
    meter.began(request(1, 10.0, counts=[3, 2]))
    meter.began(request(2, 12.0, counts=[2]))
    meter.drawn(14.0, (1, 0), (1, 1))
    assert (meter.first_token.count, meter.first_token.sum) == (1, 4.0)
    meter.drawn(14.5, (1, 0), (1, 1), (2, 0), (9, 0))  # nobody knows 9
    assert (meter.first_token.count, meter.first_token.sum) == (2, 6.5)
    assert (meter.gaps.count, meter.gaps.sum) == (2, 1.0)
    meter.drawn(17.5, (2, 0), (1, 0))  # 1 was preempted meanwhile: its client waited so long
    assert (meter.gaps.count, meter.gaps.sum) == (4, 7.0)
    meter.now = 18.0
    meter.finished(Finished(1, False, 4, LEDGER))
    assert (meter.whole.count, meter.whole.sum) == (1, 8.0)
    assert meter.per_token.sum == pytest.approx(3.5 / 2)
    sums = [meter.queued.sum, meter.prefill.sum, meter.decode.sum, meter.preempted.sum]
    assert sums == [0.4, 0.3, 1.5, 0.25]
    assert meter.inference.sum == pytest.approx(1.8)
    sizes = (meter.prompt_tokens, meter.computed_prompt_tokens, meter.generated_tokens)
    assert [each.sum for each in sizes] == [10, 6, 5]
    assert (meter.longest_choice.sum, meter.asked_choices.sum, meter.asked_tokens.sum) == (3, 2, 30)
    assert meter.preemptions.sum == 2


def test_what_did_not_end_well_is_counted_and_not_measured() -> None:
    meter = Meter()
    for handle in range(1, 6):
        meter.began(request(handle, 0.0, counts=[1]))
    meter.finished(Finished(1, True, 0, LEDGER))
    meter.failed(Failed(2, "invalid_logits", "", {}))
    meter.failed(Failed(3, "queue_full", "", {}))
    meter.cancelled(4)
    meter.cancelled()
    assert meter.ended == {"stop": 0, "length": 0, "abort": 3, "error": 2}
    assert meter.failures == {"invalid_logits": 1, "queue_full": 1}
    assert meter.queue_full == 1
    assert meter.whole.count == meter.prompt_tokens.count == 0
    for _ in range(2):  # what is not known any more changes nothing
        meter.finished(Finished(1, False, 0, LEDGER))
        meter.failed(Failed(2, "internal", "", {}))
        meter.cancelled(4)
    assert sum(meter.ended.values()) == 5
    assert meter.engine_lost(open=[]) == 1
    assert meter.ended["abort"] == 4
    assert meter.engine_lost(open=[]) == 0


@pytest.mark.parametrize(
    ("reasons", "told", "reason"),
    [
        (["stop", "stop"], None, "stop"),
        (["stop", "length"], None, "length"),
        ([None, "stop"], None, "stop"),  # its client left as it ended
        ([None, "stop"], "length", "length"),
        (["stop", "stop"], "length", "stop"),  # drawn past a stop string
    ],
)
def test_a_request_has_one_reason(reasons: list[str | None], told: str | None, reason: str) -> None:
    meter = Meter()
    meter.began(request(1, 0.0, counts=[1, 1], reasons=reasons))
    meter.tokens([Token(1, 0, 5, None, told)])
    meter.finished(Finished(1, False, 0, LEDGER))
    assert meter.ended[reason] == 1


def test_a_request_that_begins_anew_has_one_first_token_and_no_gap_between_engines() -> None:
    meter = Meter()
    kept = request(1, 1.0, counts=[2])
    meter.began(kept)
    meter.drawn(2.0, (1, 0))
    assert meter.engine_lost(open=[1]) == 0
    meter.began(kept)
    meter.drawn(9.0, (1, 0))
    assert (meter.first_token.count, meter.gaps.count) == (1, 0)
    meter.drawn(9.5, (1, 0))
    assert (meter.gaps.count, meter.gaps.sum) == (1, 0.5)


def test_steps_have_rows_and_phases() -> None:
    meter = StepMeter()
    for rows in (12, 12, 20):  # the second had no room in memory
        phases = {"plan": 0.001, "execute": 0.02, "swap": 0.5}
        meter.step(Step(StepEvents(), NO_STATS._replace(computed_tokens=rows), phases))
    meter.step(Step(StepEvents(), NO_STATS._replace(computed_tokens=20), {}))
    assert (meter.computed.count, meter.computed.sum) == (2, 20)
    assert (meter.phases["execute"].count, meter.phases["swap"].sum) == (3, 1.5)
    assert meter.phases["send"].count == 0
    meter.engine_lost()
    meter.step(Step(StepEvents(), NO_STATS._replace(computed_tokens=7), {"other": 1.0}))
    assert (meter.computed.count, meter.computed.sum) == (3, 27)
    assert meter.phases["other"].count == 1


def test_the_limit_holds_until_the_first_goes_on() -> None:
    meter = StepMeter()

    def step(**events: Any) -> str:
        meter.step(Step(StepEvents(**events), NO_STATS, {}))
        return meter.limit

    def waits(handle: int, limit: str) -> Waiting:
        return Waiting(handle, 0, limit, 1, 0, 1, 0, 0, handle, (), 0)

    assert step() == "turn"
    assert step(waiting=[waits(3, "pages")]) == "pages"
    assert step(started=[Started(4, 0, 1.0, 1)]) == "pages"
    assert step(started=[Started(3, 0, 1.0, 1)]) == "turn"
    assert step(waiting=[waits(5, "slots")]) == "slots"
    resumed = Resumed(5, 0, "swap", 1, 1, 2)
    assert step(resumed=[resumed], waiting=[waits(6, "tokens")]) == "tokens"
    meter.engine_lost()
    assert meter.limit == "turn"
