"""Names: what others ask for, what manual and dashboard name, and what promtool says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pagedd.cli.metrics import dashboard
from pagedd.server.metrics_page import NAMESPACES
from tests.server.scrape import Scrape, idle, rendered

MANUAL = Path(__file__).parents[2] / "man" / "pagedd-metrics.7"

# Names without their namespace.
ASKED = [
    line
    for line in (Path(__file__).parent / "vllm_metrics.txt").read_text().splitlines()
    if not line.startswith("#")
]
PLAIN = ("process_", "http_request")  # they have no namespace
ASKED_FOR = r"([a-z0-9_:]+)\{model_name|((?:process|http)_[a-z_]+)\{"
MODEL = rendered(idle()).series[0].labels["model_name"]


def panels() -> list[dict[str, Any]]:
    return list(json.loads(dashboard())["panels"])


def expressions(namespace: str) -> list[str]:
    """The dashboard's, as Grafana would send them."""
    found = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    values = {
        "${namespace}": NAMESPACES[namespace].prefix,
        "$model_name": ".*",
        "$instance": ".*",
        "$__rate_interval": "1m",
        "$__range": "1h",
    }
    for name, value in values.items():
        found = [each.replace(name, value) for each in found]
    return found


def promtool(*arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    return subprocess.run(
        ["promtool", *arguments], input=input, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ASKED)
def test_a_name_that_dashboards_for_vllm_ask_for_is_there(name: str) -> None:
    scrape = rendered(idle("vllm"))
    assert f"vllm:{name}" in scrape.names
    for sample in scrape.series:
        if sample.name == f"vllm:{name}":
            assert (sample.labels["model_name"], sample.labels["engine"]) == (MODEL, "0")


def test_every_series_of_ours_has_the_namespace_and_the_model() -> None:
    for namespace, details in NAMESPACES.items():
        scrape = rendered(idle(namespace))
        ours = [each for each in scrape.series if not each.name.startswith(PLAIN)]
        assert len(ours) > 300
        for sample in ours:
            assert sample.name.startswith(details.prefix)
            assert sample.labels["model_name"] == MODEL
            assert ("engine" in sample.labels) == (namespace == "vllm")


def test_promtool_finds_nothing_wrong() -> None:
    done = promtool("check", "metrics", input=rendered(idle("pagedd_")).text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("namespace", ["pagedd", "vllm"])
def test_promtool_minds_only_what_vllm_names_so(namespace: str) -> None:
    """The colon, and a histogram whose name ends as that of a counter."""
    done = promtool("check", "metrics", input=rendered(idle(namespace)).text)
    said = {line.partition(" ")[::2] for line in done.stderr.splitlines()}
    assert {text for _, text in said} == {
        "metric names should not contain ':'",
        'non-counter metrics should not have "_total" suffix',
    }
    suffixed = [name for name, text in said if "suffix" in text]
    assert suffixed == [f"{namespace}:iteration_tokens_total"]


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_name_of_the_dashboard_is_there(namespace: str) -> None:
    names = rendered(idle(namespace)).names
    asked = {
        name
        for expression in expressions(namespace)
        for name in re.findall(ASKED_FOR, expression)
        for name in name
        if name
    }
    assert len(asked) > 40
    assert asked <= names


def test_the_dashboard_is_sound(tmp_path: Path) -> None:
    board = json.loads(dashboard())
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == "${datasource}"
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "model_name", "instance"]
    prefixes = [details.prefix for details in NAMESPACES.values()]
    assert variables["namespace"]["query"].split(",") == prefixes
    rules = [
        {"record": f"x:{at}", "expr": expression}
        for at, expression in enumerate(e for name in NAMESPACES for e in expressions(name))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stderr


def test_the_manual_names_every_metric_and_no_other() -> None:
    page = MANUAL.read_text()
    items = re.findall(r"^\.It Cm ([a-z0-9_]+)(?: Brq Cm (.*))?$", page, re.MULTILINE)
    told = {name: set(re.findall(r"\w+", labels)) for name, labels in items}
    for name in (*NAMESPACES, "http_requests_total", "http_request_duration_seconds"):
        told.pop(name, None)
    assert told == families(rendered(idle()))


def families(scrape: Scrape) -> dict[str, set[str]]:
    """Name, as one asks for it, and labels of its own of each metric."""
    found: dict[str, set[str]] = {}
    for family in scrape.families:
        if family.name.startswith(PLAIN):
            continue
        name = family.name.removeprefix("pagedd:")
        name += "_total" if family.type == "counter" else ""
        labels = {label for sample in family.samples for label in sample.labels}
        found[name] = labels - {"model_name", "le"}
    found["request_failures_total"] = {"code"}  # no request has failed yet
    return found
