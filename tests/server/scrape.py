"""Metrics as a scraper sees them, of a daemon or of an object."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from pagedd.server.metrics import Metrics, Now
from pagedd.server.status import Facts, StatusBoard
from tests.engine.parts import READY
from tests.server.harness import Daemon

FACTS = Facts(state="ready", reason=None, engine_pid=1, connections=0, endpoints=())


@dataclass
class Scrape:
    """The series of one scrape."""

    text: str
    content_type: str

    def __post_init__(self) -> None:
        self.families = list(text_string_to_metric_families(self.text))
        self.series = [sample for family in self.families for sample in family.samples]

    @property
    def names(self) -> set[str]:
        """Of all that a query could ask for; those of counters with no series yet, too."""
        counters = {f"{each.name}_total" for each in self.families if each.type == "counter"}
        return counters | {sample.name for sample in self.series}

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels; the namespace may be left out."""
        values = [
            sample.value
            for sample in self.series
            if sample.name in (name, f"pagedd:{name}") and labels.items() <= sample.labels.items()
        ]
        assert values, f"there is no series {name} {labels}"
        return sum(values)

    def by(self, label: str, name: str) -> Mapping[str, float]:
        """Its series by the value of one label."""
        return {
            sample.labels[label]: sample.value
            for sample in self.series
            if sample.name in (name, f"pagedd:{name}")
        }


def scrape(daemon: Daemon, accept: str | None = None) -> Scrape:
    """What the daemon says now."""
    url = daemon.status()["endpoints"][-1]
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept": accept or "*/*"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return Scrape(answer.read().decode(), answer.headers["Content-Type"])


def idle(namespace: str = "pagedd") -> Metrics:
    """Metrics of a daemon that has done nothing yet."""
    board = StatusBoard("0", "boot", "some-model", clock=lambda: 1.0)
    board.engine_ready(READY)
    return Metrics(
        namespace,
        lambda: Now(board.status(FACTS), READY, 0, 0, {"websocket": 0, "http": 0}),
    )


def rendered(metrics: Metrics, accept: str | None = None) -> Scrape:
    """What it says now."""
    body, content_type = metrics.render(accept)
    return Scrape(body.decode(), content_type)
