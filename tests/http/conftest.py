"""Fixtures: daemons that serve HTTP beside the websocket, with a fake engine or a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.edges import EDGES, Served
from tests.server.conftest import folders, gate, start_for_module, starting, text_dir
from tests.server.harness import Daemon

__all__ = ["folders", "gate", "start_for_module", "text_dir"]

Start = Callable[..., Daemon]


@pytest.fixture(params=EDGES)
def edge(request: pytest.FixtureRequest) -> str:
    """Each way to ask."""
    return str(request.param)


@pytest.fixture
def start(text_dir: Path, folders: Callable[[], Path]) -> Iterator[Start]:
    """Start daemons of one's own, with HTTP; those that still run at the end are killed."""
    with starting(text_dir, folders) as start:

        def with_http(folder: Path | None = None, **options: Any) -> Daemon:
            return start(folder, **{"http": "127.0.0.1:0", **options})

        yield with_http


@pytest.fixture(scope="module")
def daemon(text_dir: Path, folders: Callable[[], Path]) -> Iterator[Daemon]:
    """One for all tests of a file that leave it as it was."""
    daemon = Daemon(folders(), text_dir, http="127.0.0.1:0")
    yield daemon
    code, errors = daemon.stop()
    assert code == 0, errors
    assert "Traceback" not in errors


@pytest.fixture(scope="module")
def served(daemon: Daemon) -> Served:
    """Where the shared daemon listens."""
    return Served.of(daemon)
