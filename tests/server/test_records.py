"""Records of every kind: their fields and their sentences."""

from __future__ import annotations

import json

import msgspec
import pytest

from pagedd.core.events import (
    Accepted,
    Evicted,
    Failed,
    Reprioritized,
    Resumed,
    Started,
)
from pagedd.protocol import Record
from pagedd.server.journal import Journal, Told
from pagedd.server.records import event_of, missed, preparing, record_of
from tests.server.told import finished, holder, preempted, running, waiting, who


@pytest.fixture
def journal() -> Journal:
    journal = Journal()
    journal.know(17, who("r41", prompt_tokens=128, priority=5))
    journal.know(30, who("r50"))
    journal.know(31, who("many", choices=3))
    journal.know(32, who("a.b"))
    return journal


def record(journal: Journal, event: Told) -> Record:
    """The record, as a client reads it."""
    made = record_of(journal.entry(event, 1.5))
    assert msgspec.json.decode(msgspec.json.encode(made), type=Record) == made
    assert made.at == 1.5
    return made


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            Accepted(17, 3),
            "r41 (#17) joined the queue with 128 prompt tokens and priority 5, behind 3 others.",
        ),
        (
            Accepted(30, 0),
            "r50 (#30) joined the queue with 5 prompt tokens and priority 0, first in the queue.",
        ),
        (
            Started(17, 64, 12.3, 9),
            "r41 (#17) was admitted after 12 ms: it holds 9 pages, and 64 of its prompt tokens "
            "were in the cache.",
        ),
        (Reprioritized(17, 5, -2, False), "r41 (#17) has priority -2 now, after 5."),
        (
            Reprioritized(17, 5, 4, True),
            "r41 (#17) has priority 4 now, after 5, because it waited for long.",
        ),
        (
            waiting(),
            "r41 (#17) waits for pages: it needs 12 (2 of them to be left free), 5 are free, "
            "7 are short.",
        ),
        (
            waiting(
                limit="slots", needed=1, available=0, short=1, headroom=0, ahead=2, first=30
            )._replace(holders=(holder(32, 20), holder(31, 4, choice=2)), others=3),
            "r41 (#17) waits for slots: it needs 1, 0 are free, 1 is short; they are held by "
            "a.b (#32) with 20 pages, choice 2 of many (#31) with 4 pages and 3 more; 2 sequences "
            "are before it, first r50 (#30).",
        ),
        (
            waiting(limit="tokens", needed=64, available=0, short=64, headroom=0),
            "r41 (#17) waits for tokens of the step, which prefills before it use up: it needs 64, "
            "0 are free, 64 are short.",
        ),
        (
            waiting(limit="turn", ahead=1, first=99),
            "r41 (#17) waits for its turn: it would fit, but 1 sequence is before it, first #99.",
        ),
        (waiting(limit="turn"), "r41 (#17) is next: nothing keeps it from the next step."),
        (
            running(),
            "r41 (#17) is decoding: 22 tokens generated, on 10 pages, 2 of them shared, "
            "priority 5.",
        ),
        (
            running(handle=31, choice=1, state="prefilling", computed=64, tokens=128, shared=0),
            "choice 1 of many (#31) is computing what it has: 64 of 128 tokens, on 10 pages, "
            "priority 5.",
        ),
        (
            preempted(),
            "r41 (#17) gave way to r50 (#30), which lacked pages: priority 0 comes before 5, "
            "policy length; its 9 pages went to host memory "
            "(estimated: swap 12 ms, recompute 80 ms).",
        ),
        (
            preempted(mode="recompute", choice_of_mode="swap_space_full", host_available=3),
            "r41 (#17) gave way to r50 (#30), which lacked pages: priority 0 comes before 5, "
            "policy length; its 9 pages are to be computed again (too little host memory: 9 host "
            "pages needed, 3 available; estimated: swap 12 ms, recompute 80 ms).",
        ),
        (
            preempted(
                mode="recompute", choice_of_mode="no_swap_space", taker_priority=5, lack="slots"
            ),
            "r41 (#17) gave way to r50 (#30), which lacked slots: both have priority 5, "
            "policy length; its 9 pages are to be computed again "
            "(there is no swap space; estimated to recompute 80 ms).",
        ),
        (
            preempted(taker=17, taker_priority=5, pages=1, choice_of_mode="configured"),
            "r41 (#17) gave way because pages were short and all others come first, policy length; "
            "its 1 page went to host memory "
            "(swap as configured; estimated: swap 12 ms, recompute 80 ms).",
        ),
        (
            preempted(mode="recompute", choice_of_mode="trial"),
            "r41 (#17) gave way to r50 (#30), which lacked pages: priority 0 comes before 5, "
            "policy length; its 9 pages are to be computed again (trial of recompute, which was "
            "not measured for long; estimated: swap 12 ms, recompute 80 ms).",
        ),
        (
            Resumed(17, 0, "swap", 10, 149, 150),
            "r41 (#17) came back from host memory: 149 of its 150 tokens are in the cache, "
            "on 10 pages.",
        ),
        (
            Resumed(31, 0, "recompute", 1, 16, 150),
            "choice 0 of many (#31) is computed again: 16 of its 150 tokens are in the cache, "
            "on 1 page.",
        ),
        (
            Evicted(12, 8, 3),
            "12 cached pages made room for others, 8 of them kept in host memory; "
            "host memory forgot 3 cached pages.",
        ),
        (Evicted(1, 1, 0), "1 cached page made room for others, kept in host memory."),
        (Evicted(0, 0, 1), "host memory forgot 1 cached page."),
        (
            finished(17),
            "r41 (#17) finished: queued 2.1 ms, prefill 9.0 ms, decode 1.5 s, at most 9 pages, "
            "64 tokens from the cache, preempted 2 times for 31 ms, 20 tokens computed again, "
            "3.3 MiB swapped.",
        ),
        (
            Failed(30, "invalid_logits", "the model gave no logits.", {}),
            "r50 (#30) failed (invalid_logits): the model gave no logits.",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_sentences(journal: Journal, event: Told, text: str) -> None:
    assert record(journal, event).text == text


def test_the_fields_of_a_preemption(journal: Journal) -> None:
    made = record(journal, preempted(choice=1))
    shown = json.loads(msgspec.json.encode(made))
    del shown["text"]
    assert shown == {
        "at": 1.5,
        "kind": "preempted",
        "request": "r41",
        "handle": 17,
        "index": 1,
        "priority": 5,
        "pages": 9,
        "mode": "swap",
        "policy": "length",
        "lack": "pages",
        "taker": "r50",
        "taker_handle": 30,
        "taker_priority": 0,
        "choice_of_mode": "estimate",
        "swap_ms": 12.0,
        "recompute_ms": 80.2,
        "host_needed": 9,
        "host_available": 40,
    }


def test_the_fields_of_a_wait(journal: Journal) -> None:
    event = waiting(ahead=1, first=30, holders=(holder(31, 20, choice=2, alone=4),), others=6)
    shown = json.loads(msgspec.json.encode(record(journal, event)))
    del shown["text"]
    assert shown == {
        "at": 1.5,
        "kind": "waiting",
        "request": "r41",
        "handle": 17,
        "index": 0,
        "limit": "pages",
        "needed": 12,
        "available": 5,
        "short": 7,
        "headroom": 2,
        "ahead": 1,
        "first": "r50",
        "first_handle": 30,
        "holders": [
            {"request": "many", "handle": 31, "index": 2, "priority": 0, "pages": 20, "alone": 4}
        ],
        "others": 6,
    }


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (Accepted(17, 3), {"queue_position": 3, "prompt_tokens": 128, "priority": 5}),
        (Started(17, 64, 12.3, 9), {"cached_tokens": 64, "queued_ms": 12.3, "pages": 9}),
        (Reprioritized(17, 5, 4, True), {"before": 5, "priority": 4, "aged": True}),
        (
            Resumed(17, 0, "swap", 10, 149, 150),
            {"index": 0, "mode": "swap", "pages": 10, "kept_tokens": 149, "tokens": 150},
        ),
        (
            running(),
            {"state": "decoding", "priority": 5, "computed": 149, "tokens": 150, "generated": 22}
            | {"pages": 10, "shared": 2, "index": 0},
        ),
        (finished(17), {"reason": "finished", "cached_tokens": 64}),
        (finished(17, cancelled=True), {"reason": "cancelled", "cached_tokens": 64}),
        (Failed(17, "queue_full", "too many", {"waiting": 3}), {"reason": "queue_full"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_fields_of_the_others(journal: Journal, event: Told, fields: dict[str, object]) -> None:
    shown = json.loads(msgspec.json.encode(record(journal, event)))
    about = {name: shown.pop(name) for name in ("at", "kind", "text", "request", "handle")}
    assert (about["request"], about["handle"]) == ("r41", 17)
    assert shown == fields


def test_what_is_about_no_request_names_none(journal: Journal) -> None:
    shown = json.loads(msgspec.json.encode(record(journal, Evicted(3, 2, 1))))
    assert (shown.pop("at"), shown.pop("text")[:7]) == (1.5, "3 cache")
    assert shown == {"kind": "evicted", "pages": 3, "saved": 2, "host_pages": 1}
    lost = missed(1, 2.5)
    assert (lost.kind, lost.count, lost.at) == ("missed", 1, 2.5)
    assert lost.text == "1 event missed, because the client did not read."


def test_a_request_that_is_tokenised_waits() -> None:
    made = preparing(7, who("r41", priority=-3), 1.0)
    assert (made.kind, made.request, made.handle, made.priority) == ("waiting", "r41", 7, -3)
    assert made.text == "r41 (#7) waits until its prompt has been made into tokens."


def test_an_event_has_its_records_fields(journal: Journal) -> None:
    entry = journal.entry(preempted(), 1.5)
    shown = json.loads(msgspec.json.encode(event_of(entry)))
    assert shown.pop("type") == "event"
    assert shown == json.loads(msgspec.json.encode(record_of(entry)))


def test_a_long_id_is_cut_in_sentences_and_whole_as_data(journal: Journal) -> None:
    journal.know(5, who("x" * 128))
    made = record(journal, Failed(5, "internal", "no", {}))
    assert made.request == "x" * 128
    assert made.text == f"{'x' * 39}… (#5) failed (internal): no."
