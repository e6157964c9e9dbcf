"""What the metrics count of HTTP requests, under names that servers in Python have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagedd.server.metrics_histogram import REQUEST_S, Histogram

OTHER = "other"  # paths and methods that nobody serves: a client must not make up series
METHODS = frozenset(("GET", "POST", "OPTIONS", "HEAD", "PUT", "DELETE", "PATCH"))
GONE = 499  # as proxies log it: the client left before there was an answer


class HttpMeter:
    """``paths`` are counted by themselves, all others together."""

    def __init__(self) -> None:
        self.paths: Collection[str] = ()
        self._answers: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], Histogram] = {}

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """To its last byte."""
        handler = path if path in self.paths else OTHER
        method = method if method in METHODS else OTHER
        key = (handler, method, f"{status // 100}xx")
        self._answers[key] = self._answers.get(key, 0) + 1
        histogram = self._seconds.get(key[:2])
        if histogram is None:
            histogram = self._seconds[key[:2]] = Histogram(REQUEST_S)
        histogram.observe(seconds)

    def families(self) -> Iterator[Metric]:
        """Without a namespace."""
        labels = ("handler", "method")
        answers = CounterMetricFamily(
            "http_requests", "HTTP requests by path and status.", labels=(*labels, "status")
        )
        for key, count in self._answers.items():
            answers.add_metric(key, count)
        yield answers
        seconds = HistogramMetricFamily(
            "http_request_duration_seconds",
            "Time from a request's head to the last byte of its answer, in seconds.",
            labels=labels,
        )
        for pair, histogram in self._seconds.items():
            seconds.add_metric(pair, histogram.buckets(), histogram.sum)
        yield seconds


class Counted:
    """ASGI middleware, in front of all others."""

    def __init__(self, app: ASGIApp, *, meter: HttpMeter, clock: Callable[[], float]) -> None:
        self._app = app
        self._meter = meter
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, however it ends."""
        began, status = self._clock(), GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds = self._clock() - began
            self._meter.answered(scope["path"], scope["method"], status, seconds)
