"""Prometheus metrics of the daemon and its engine: counted as it happens, read at a scrape.

Totals go on when the engine is restarted, and agree with the status.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pagedd.engine.messages import Step
from pagedd.server.metrics_families import families
from pagedd.server.metrics_http import HttpMeter
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
        self.http = HttpMeter()

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
        yield from self.http.families()
        yield from self._process.collect()

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """Body and content type, in the text format that the header ``Accept`` asks for."""
        if _wants_openmetrics(accept or ""):
            # Every name is one that needs no escaping; the others would take its colon away.
            encode: Callable[..., bytes] = openmetrics.generate_latest
            body = encode(self, escaping=openmetrics.ALLOWUTF8)
            return body, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self), CONTENT_TYPE_PLAIN_0_0_4


def _wants_openmetrics(accept: str) -> bool:
    """By a header ``Accept``: not less than plain text, which is the default."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        media_type, *parameters = (each.strip() for each in part.split(";"))
        weight = 1.0
        for name, _, value in (each.partition("=") for each in parameters):
            if name.strip() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        if media_type in weights:
            weights[media_type] = max(weights[media_type], weight)
    wanted, plain = weights.values()
    return wanted > 0 and wanted >= plain
