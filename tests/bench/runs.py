"""Runs as a driver would report them, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pagedd import protocol
from pagedd.bench.drive import DaemonRun, Trace
from tests.cli.fake_daemon import LEDGER, status


def ledger(**changes: Any) -> protocol.Ledger:
    return msgspec.structs.replace(LEDGER, **changes)


def trace(index: int = 0, answer: Sequence[int] = (1, 2), **changes: Any) -> Trace:
    """A request that was sent at 100 s and ended."""
    values: dict[str, Any] = {
        "asked": len(answer),
        "sent": 100.0,
        "first": 101.0,
        "ended": 102.0,
        "tokens": len(answer),
        "seen": len(answer),
        "gaps": [0.01] * (len(answer) - 1),
        "answer": list(answer),
        "ledger": LEDGER,
    }
    return Trace(index, **(values | changes))


def run(
    traces: Sequence[Trace],
    statuses: Sequence[protocol.Status] = (),
    seconds: float = 10.0,
    **after: Any,
) -> DaemonRun:
    """A run from 100 s on; ``after`` are fields of its last status."""
    return DaemonRun(
        traces=list(traces),
        began=100.0,
        ended=100.0 + seconds,
        before=status(),
        after=status(**after),
        statuses=list(statuses),
        input_tokens=0,
        cached_tokens=0,
        client_s=0.1,
    )
