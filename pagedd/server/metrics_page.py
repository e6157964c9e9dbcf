"""One scrape: the namespace of its names, what is read at its moment, and how families are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from pagedd.engine.messages import Ready
from pagedd.protocol import Status
from pagedd.server.metrics_histogram import Histogram


@dataclass(frozen=True, slots=True)
class Namespace:
    """``prefix`` of the names; ``labels`` that every series has besides ``model_name``."""

    prefix: str
    labels: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False  # as promtool wants names: _total for counters alone


NAMESPACES: Mapping[str, Namespace] = MappingProxyType(
    {
        "pagedd": Namespace("pagedd:"),
        "vllm": Namespace("vllm:", {"engine": "0"}),
        "pagedd_": Namespace("pagedd_", strict=True),
    }
)


class Now(NamedTuple):
    """What is read at the moment of a scrape."""

    status: Status
    ready: Ready | None  # of the engine that is there, or was last
    preparing: int  # requests that are being tokenised
    held: int  # requests that wait for another engine
    connections: Mapping[str, int]  # by kind


class Page:
    """Makes the families of one scrape."""

    def __init__(self, namespace: Namespace, model: str) -> None:
        self._prefix = namespace.prefix
        self._strict = namespace.strict
        self._labels = {**namespace.labels, "model_name": model}

    def gauge(self, name: str, help: str, value: float) -> Metric:
        """One value of this moment."""
        return self.gauges(name, help, (), {(): value})

    def gauges(
        self, name: str, help: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
    ) -> Metric:
        """Values of this moment, by those of ``labels``."""
        family = GaugeMetricFamily(self._prefix + name, help, labels=(*self._labels, *labels))
        for key, value in values.items():
            family.add_metric((*self._labels.values(), *key), value)
        return family

    def info(self, name: str, help: str, facts: Mapping[str, str]) -> Metric:
        """A 1 whose labels tell something."""
        return self.gauges(name, help, tuple(facts), {tuple(facts.values()): 1})

    def counter(self, name: str, help: str, value: float) -> Metric:
        """One total; its name gets _total."""
        return self.counters(name, help, (), {(): value})

    def counters(
        self, name: str, help: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
    ) -> Metric:
        """Totals by the values of ``labels``."""
        family = CounterMetricFamily(self._prefix + name, help, labels=(*self._labels, *labels))
        for key, value in values.items():
            family.add_metric((*self._labels.values(), *key), value)
        return family

    def histogram(self, name: str, help: str, values: Histogram) -> Metric:
        """Sizes of all values."""
        return self.histograms(name, help, (), {(): values})

    def histograms(
        self,
        name: str,
        help: str,
        labels: tuple[str, ...],
        values: Mapping[tuple[str, ...], Histogram],
    ) -> Metric:
        """Sizes of all values, by those of ``labels``."""
        if self._strict:
            name = name.removesuffix("_total")
        family = HistogramMetricFamily(self._prefix + name, help, labels=(*self._labels, *labels))
        for key, each in values.items():
            family.add_metric((*self._labels.values(), *key), each.buckets(), each.sum)
        return family
