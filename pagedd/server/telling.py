"""What a step of the engine means for those who asked, and for the journal."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pagedd.core.events import StepEvents
from pagedd.server.journal import Journal
from pagedd.server.requests import OpenRequest
from pagedd.server.sentences import sentence

logger = logging.getLogger(__name__)


def tell(
    events: StepEvents,
    requests: Mapping[int, OpenRequest],
    journal: Journal,
    now: float,
    *,
    idle: bool,
) -> list[tuple[int, int]]:
    """Carry all but the ends to the requests, in the order of the lists.

    ``idle``: no step follows soon. Returns handle and choice of those that a stop string has ended,
    which the engine does not know of.
    """
    for accepted in events.accepted:
        journal.record(accepted, now)
        if (request := requests.get(accepted.handle)) is not None:
            request.accepted(accepted)
    for reprioritized in events.reprioritized:
        journal.record(reprioritized, now)
    for preempted in events.preempted:
        entry = journal.record(preempted, now)
        if (request := requests.get(preempted.handle)) is not None:
            request.preempted(preempted, sentence(entry))
    journal.evicted(events.evicted, now, idle=idle)
    for shrunk in events.shrunk:
        logger.warning("%s", sentence(journal.record(shrunk, now)))
    for started in events.started:
        journal.record(started, now)
        if (request := requests.get(started.handle)) is not None:
            request.started(started)
    for resumed in events.resumed:
        entry = journal.record(resumed, now)
        if (request := requests.get(resumed.handle)) is not None:
            request.resumed(resumed, sentence(entry))
    for waiting in events.waiting:
        journal.record(waiting, now)
    return [
        (token.handle, token.choice)
        for token in events.tokens
        if (request := requests.get(token.handle)) is not None and request.token(token)
    ]
