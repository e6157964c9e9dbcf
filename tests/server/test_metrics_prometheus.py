"""Prometheus itself scrapes a daemon, and every query of the dashboard finds something."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pagedd.server.metrics_page import NAMESPACES
from pagedd.server.sockets import bind_tcp
from tests.engine.fake_engine import NAN
from tests.server.harness import Daemon, until
from tests.server.test_metrics_names import expressions

Start = Callable[..., Daemon]


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Callable[[str], list[Any]]]:
    """A server that scrapes ``target`` every second; asks it for an expression's value."""
    with bind_tcp("127.0.0.1:0", with_key=False) as free:
        address = "{}:{}".format(*free.getsockname())
    job = {"job_name": "pagedd", "static_configs": [{"targets": [target]}]}
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(expression: str) -> list[Any]:
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}") as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:  # it is not there yet, or not ready
            return []

    try:
        yield ask
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_query_of_the_dashboard_finds_something(
    start: Start, tmp_path: Path, namespace: str
) -> None:
    daemon = start(http="127.0.0.1:0", metrics_namespace=namespace)
    target = daemon.status()["endpoints"][-1].removeprefix("http://")
    open = expressions(namespace)
    with prometheus(tmp_path, target) as ask, daemon.client() as client:
        until(lambda: ask("up == 1"), "a scrape")

        def found() -> bool:
            client.generate("a", prompt="hello there", params={"max_tokens": 10})
            client.generate("b", prompt="hello there", params={"seed": NAN})
            open[:] = [each for each in open if not ask(each)]
            return not open

        until(found, "an answer to each of the queries")
