"""Events of a scheduler, as the tests of the journal and of the records need them."""

from __future__ import annotations

from typing import Any

from pagedd.core.events import Finished, Holder, Ledger, Preempted, Running, Waiting
from pagedd.protocol import Explanation
from pagedd.server.journal import Who

LEDGER = Ledger(2.1, 9.0, 1500.0, 31.4, 2, 9, 4.5, 20, 3_500_000)


def who(id: str, connection: int = 1, **fields: Any) -> Who:
    return Who(**({"id": id, "connection": connection, "prompt_tokens": 5} | MORE | fields))


MORE = {"priority": 0, "choices": 1}


def finished(handle: int, *, cancelled: bool = False) -> Finished:
    return Finished(handle, cancelled, 64, LEDGER)


def preempted(**fields: Any) -> Preempted:
    usual = Preempted(
        handle=17,
        choice=0,
        mode="swap",
        pages=9,
        policy="length",
        priority=5,
        lack="pages",
        taker=30,
        taker_priority=0,
        choice_of_mode="estimate",
        swap_ms=12.0,
        recompute_ms=80.2,
        host_needed=9,
        host_available=40,
    )
    return usual._replace(**fields)


def waiting(**fields: Any) -> Waiting:
    usual = Waiting(
        handle=17,
        choice=0,
        limit="pages",
        needed=12,
        available=5,
        short=7,
        headroom=2,
        ahead=0,
        first=17,
        holders=(),
        others=0,
    )
    return usual._replace(**fields)


def holder(handle: int, pages: int, **fields: Any) -> Holder:
    return Holder(handle, 0, 0, pages, pages)._replace(**fields)


def running(**fields: Any) -> Running:
    usual = Running(17, 0, "decoding", 5, 149, 150, 22, 10, 2)
    return usual._replace(**fields)


def kinds(explanation: Explanation) -> list[str]:
    return [record.kind for record in explanation.reasons]
