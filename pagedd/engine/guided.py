"""A scheduler that tells why the grammars of answers could not be followed."""

from __future__ import annotations

from collections.abc import Callable

from pagedd.core.events import Failed, StepEvents
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.errors import BadRequest, InvalidLogits

FaultOf = Callable[[int], str | None]  # by a request's handle


class GuidedScheduler(Scheduler):
    """Where a grammar allows nothing more, no token can be drawn: the scheduler sees no more than
    that. Who filled the masks knows better, and the request ends as one that asked too much.
    """

    def __init__(self, config: SchedulerConfig, *, key: bytes, fault_of: FaultOf) -> None:
        super().__init__(config, key=key)
        self._fault_of = fault_of

    def take_events(self) -> StepEvents:
        """As the scheduler has them, but for these failures."""
        events = super().take_events()
        events.failed[:] = [self._retold(failed) for failed in events.failed]
        return events

    def _retold(self, failed: Failed) -> Failed:
        if failed.code != InvalidLogits.code:
            return failed
        fault = self._fault_of(failed.handle)
        if fault is None:
            return failed
        message = f"the grammar could not be followed to the end of the answer: {fault}"
        return failed._replace(code=BadRequest.code, message=message)
