"""``--served-model-name``: one name for the model, wherever clients see it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.cli.terminal import environment, run
from tests.real_daemon import daemon, wire
from tests.server.harness import until
from tests.tiny.models import build

NAME = "house/model:1"


class Named(NamedTuple):
    url: str
    http: str
    model: Path
    home: Path


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
    """A daemon whose settings stand in a file."""
    home = tmp_path_factory.mktemp("n")
    model = build("llama", home / "tiny")
    (home / "p.toml").write_text(f'served-model-name = "{NAME}"\nnum-pages = 64\nthreads = 1\n')
    flags = (f"--config={home / 'p.toml'}", f"--log-file={home / 'log'}", "--http=127.0.0.1:0")
    with daemon(home, str(model), *flags) as url:
        with wire(url) as client:
            http = client.status()["endpoints"][-1]
        yield Named(url, http, model, home)


def test_status_hello_models_and_metrics_show_it(named: Named) -> None:
    done = run("status", "--json", "--url", named.url, env=environment(named.home))
    assert json.loads(done.stdout)["model"] == NAME
    with wire(named.url) as client:
        assert client.hello["model"] == NAME
    (card,) = httpx2.get(f"{named.http}/v1/models").json()["data"]
    assert card["id"] == NAME
    assert httpx2.get(f"{named.http}/v1/models/{NAME}").json() == card
    assert f'model_name="{NAME}"' in httpx2.get(f"{named.http}/metrics").text


def test_requests_may_use_it(named: Named) -> None:
    def complete(model: str) -> httpx2.Response:
        body = {"model": model, "prompt": "abc", "max_tokens": 1}
        return httpx2.post(f"{named.http}/v1/completions", json=body)

    for name in (NAME, str(named.model)):
        assert complete(name).json()["model"] == NAME
    refused = complete("tiny")
    assert refused.status_code == 404
    assert NAME in refused.json()["error"]["message"]


def test_without_it_the_settings_say_default(home: Path) -> None:
    done = run("config", "show", env=environment(home))
    (line,) = [line for line in done.stdout.decode().splitlines() if "served-model-name" in line]
    assert line.split() == ["served-model-name", "default"]


def test_another_name_needs_a_restart(named: Named) -> None:
    with wire(named.url) as client:
        pid = client.status()["pid"]
    path = named.home / "p.toml"
    path.write_text(path.read_text().replace(NAME, "another"))
    os.kill(pid, signal.SIGHUP)
    said = "SIGHUP: only a restart changes --served-model-name"
    until(lambda: said in (named.home / "log").read_text(), "the line in the log")
    assert httpx2.get(f"{named.http}/v1/models").json()["data"][0]["id"] == NAME
