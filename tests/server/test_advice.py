"""Advice: which knob, for what was measured; and that it comes and goes with the pressure."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pagedd.config import BY_NAME
from pagedd.core.events import PageCounts, Stats, StepEvents
from pagedd.engine.messages import Step
from pagedd.server.advice import GIB, MIB, Limits, Pressure, advise
from pagedd.server.status import StatusBoard
from tests.engine.parts import NO_STATS, READY
from tests.server.test_status import FACTS
from tests.server.told import preempted

PRESSURE = Pressure(
    seconds=10.0,
    full=0.714,
    usage=0.984,
    preemptions=12,
    sequences=12.4,
    largest=9.0,
    pages_at_end=16.0,
    wanted=20,
    choices=1,
)
LIMITS = Limits(
    num_pages=100,
    page_size=32,
    page_bytes=MIB,
    weights_bytes=90 * MIB,
    free_bytes=0,
    max_num_seqs=64,
    max_model_len=8192,
    dtype="bfloat16",
    fixed_pages=False,
)
BEGINS = "the cache was full in 71% of the steps of the last 10 s, with 12 preemptions: "


@pytest.mark.parametrize(
    ("pressure", "limits", "text"),
    [
        (
            {"largest": 51.0},
            {"free_bytes": 8 * GIB},
            "one request held 51 of 100 pages; --max-model-len 1600 (now 8192) would leave the "
            "others room",
        ),
        (
            {},
            {"free_bytes": 8 * GIB},
            "8.0 GiB of memory are free; --kv-cache-memory 321MiB (now 100MiB) would use some of "
            "it",
        ),
        (
            {},
            {"free_bytes": 8 * GIB, "fixed_pages": True},
            "8.0 GiB of memory are free; --num-pages 321 (now 100) would use some of it",
        ),
        (
            {},
            {"free_bytes": 100 * MIB},
            "100 MiB of memory are free; --kv-cache-memory 150MiB (now 100MiB) would use some of "
            "it",
        ),
        (
            {},
            {"weights_bytes": 300 * MIB, "free_bytes": 40 * MIB},
            "the weights take 300 MiB and leave 100 MiB for pages; a smaller model would leave "
            "more",
        ),
        (
            {},
            {"weights_bytes": 14 * GIB, "dtype": "float32"},
            "the weights take 14.0 GiB and leave 100 MiB for pages; --dtype bfloat16 (now "
            "float32) or a smaller model would leave more",
        ),
        (
            {},
            {},
            "12 sequences share 100 pages, and one needs 16.0 until it ends; --max-num-seqs 6 "
            "(now 64) would let each of them go on",
        ),
        (
            {"choices": 8},
            {},
            "12 sequences share 100 pages, and one needs 16.0 until it ends; --max-num-seqs 8 "
            "(now 64) would let each of them go on",
        ),
        (
            {"pages_at_end": 0.0, "largest": 20.0},
            {"page_bytes": 0},
            "12 sequences share 100 pages, and one needs 20.0 until it ends; --max-num-seqs 5 "
            "(now 64) would let each of them go on",
        ),
        (
            {"pages_at_end": 4.0},
            {},
            "12 sequences share 100 pages, and one needs 7.9 until it ends; --max-num-seqs 11 "
            "(now 64) would let each of them go on",
        ),
    ],
)
def test_the_knob_follows_from_what_was_measured(
    pressure: dict[str, float], limits: dict[str, int], text: str
) -> None:
    assert advise(replace(PRESSURE, **pressure), replace(LIMITS, **limits)) == BEGINS + text


@pytest.mark.parametrize(
    ("pressure", "limits"),
    [
        ({"full": 0.5}, {}),
        ({"preemptions": 0}, {}),
        ({"choices": 64}, {}),
    ],
)
def test_there_is_none_without_pressure_or_where_nothing_would_help(
    pressure: dict[str, float], limits: dict[str, int]
) -> None:
    assert advise(replace(PRESSURE, **pressure), replace(LIMITS, **limits)) is None


@pytest.mark.parametrize(
    ("page_bytes", "value"), [(64 * MIB, "21GiB"), (MIB, "321MiB"), (3000, "941KiB")]
)
def test_what_it_says_is_what_the_options_take(page_bytes: int, value: str) -> None:
    said = advise(PRESSURE, replace(LIMITS, free_bytes=64 * GIB, page_bytes=page_bytes))
    assert f"--kv-cache-memory {value} (now" in str(said)
    read = BY_NAME["kv-cache-memory"].kind.read(value)
    assert 321 * page_bytes <= read < 321 * page_bytes * 1.1


class Engine:
    """Steps of an engine whose cache is as full as it is told, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 50.0
        self.board = StatusBoard(
            "0", "boot", "m", lambda: self.now, free_memory=lambda: 0, fixed_pages=True
        )
        self.board.engine_ready(READY)

    def run(
        self,
        seconds: float,
        full: int,
        *,
        total: int = 100,
        preempts: bool = True,
        busy: bool = True,
    ) -> None:
        """A step every tenth of a second; one in ten preempts."""
        stats: Stats = NO_STATS._replace(
            running=4 * busy,
            sequences=4 * busy,
            most_pages=3,
            pages=PageCounts(total, total - full, 0, full, 0),
        )
        for at in range(round(seconds * 10)):
            self.now += 0.1
            events = StepEvents()
            if preempts and at % 10 == 0:
                events.preempted.append(preempted())
            self.board.step(Step(events, stats, {"plan": 0.0}))

    @property
    def advice(self) -> object:
        return self.board.status(FACTS).advice


def test_it_comes_after_ten_seconds_and_goes_with_the_pressure() -> None:
    engine = Engine()
    engine.run(9.5, full=97)
    assert not engine.advice
    engine.run(1.0, full=97)
    assert isinstance(engine.advice, str)
    assert engine.advice.startswith(
        "the cache was full in 100% of the steps of the last 10 s, with 11 preemptions: "
    )
    engine.run(4.0, full=40)
    assert engine.advice, "it was full most of the time"
    engine.run(2.0, full=40)
    assert not engine.advice


def test_a_cache_that_is_full_between_the_ends_of_requests_counts_as_full() -> None:
    engine = Engine()
    for _ in range(12):
        engine.run(0.7, full=96)
        engine.run(0.3, full=80, preempts=False)
    assert re.search("in (69|70|71)% of the steps", str(engine.advice))
    engine = Engine()
    for _ in range(12):
        engine.run(1.0, full=95)
    assert not engine.advice, "95% is not more than 95%"


def test_a_small_cache_is_full_when_not_a_page_more_is_left_than_sequences_run() -> None:
    engine = Engine()
    engine.run(12.0, full=15, total=20)
    assert not engine.advice
    engine.run(12.0, full=16, total=20)
    assert engine.advice


def test_it_goes_when_nothing_is_preempted_any_more_or_nothing_is_left_to_do() -> None:
    engine = Engine()
    engine.run(12.0, full=97)
    assert engine.advice
    engine.run(10.0, full=97, preempts=False)
    assert engine.advice
    engine.run(2.0, full=97, preempts=False)
    assert not engine.advice
    engine.run(12.0, full=97)
    assert engine.advice
    engine.run(0.1, full=0, busy=False)
    assert not engine.advice
    engine.run(9.5, full=97)
    assert not engine.advice, "it was idle less than ten seconds ago"


def test_it_goes_when_the_engine_is_silent_or_gone() -> None:
    engine = Engine()
    engine.run(12.0, full=97)
    assert engine.advice
    engine.now += 12.0
    assert not engine.advice
    engine.run(12.0, full=97)
    assert engine.advice
    engine.board.engine_lost(3)
    engine.board.engine_ready(READY)
    assert not engine.advice


def test_the_measured_size_of_requests_is_what_counts() -> None:
    engine = Engine()
    for _ in range(10):
        engine.board.ended(80, 2)
    engine.run(12.0, full=97)
    assert "one needs 40.0 until it ends; --max-num-seqs 2 (now 8)" in str(engine.advice)
