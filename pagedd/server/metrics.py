"""Prometheus metrics of the daemon and its engine: counted as it happens, read at a scrape.

Totals go on when the engine is restarted, and agree with the status.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pagedd.engine.messages import Step
from pagedd.server.metrics_families import families
from pagedd.server.metrics_page import NAMESPACES, Now, Page
from pagedd.server.metrics_requests import RequestMeter
from pagedd.server.metrics_steps import StepMeter

__all__ = ["Metrics", "Now"]


class Metrics(Collector):
    """``namespace`` is a key of ``NAMESPACES``; ``look`` is called at every scrape.

    ``clock``: seconds, monotonic, the one of ``OpenRequest.arrived``.
    """

    def __init__(
        self,
        namespace: str,
        look: Callable[[], Now],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._namespace = NAMESPACES[namespace]
        self._look = look
        self._process = ProcessCollector(registry=None)
        self._engines = 0
        self.requests = RequestMeter(clock)
        self.steps = StepMeter()

    def engine_ready(self) -> None:
        """There is an engine, or another one."""
        self._engines += 1

    def step(self, step: Step) -> None:
        """What one step did; before its events are carried to the requests."""
        self.steps.step(step)
        if step.events.tokens:
            self.requests.tokens(step.events.tokens)

    def collect(self) -> Iterable[Metric]:
        """The families of this moment."""
        now = self._look()
        page = Page(self._namespace, now.status.model)
        restarts = max(self._engines - 1, 0)
        yield from families(page, now, self.requests, self.steps, restarts)
        yield from self._process.collect()

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """Body and content type, in the text format that the header ``Accept`` asks for."""
        encode, media_type = choose_encoder(accept or "")
        return encode(self), media_type
