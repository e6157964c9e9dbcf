"""Fixtures of the black-box tests: a shared daemon per file, or one's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.harness import Daemon, Gate, make_text_dir


@pytest.fixture(scope="session")
def text_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_dir(tmp_path_factory.mktemp("text") / "tiny")


@pytest.fixture(scope="session")
def folders() -> Iterator[Callable[[], Path]]:
    """Folders with short names: a socket's path has 103 bytes."""
    with tempfile.TemporaryDirectory(prefix="pagedd-") as base:
        yield lambda: Path(tempfile.mkdtemp(dir=base))


@pytest.fixture(scope="module")
def daemon(text_dir: Path, folders: Callable[[], Path]) -> Iterator[Daemon]:
    """One for all tests of a file that leave it as it was."""
    daemon = Daemon(folders(), text_dir)
    yield daemon
    code, errors = daemon.stop()
    assert code == 0, errors
    assert "Traceback" not in errors


@pytest.fixture
def start(text_dir: Path, folders: Callable[[], Path]) -> Iterator[Callable[..., Daemon]]:
    """Start daemons of one's own; those that still run are stopped."""
    with starting(text_dir, folders) as start:
        yield start


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Closed."""
    return Gate(tmp_path / "gate")


@pytest.fixture(scope="module")
def start_for_module(
    text_dir: Path, folders: Callable[[], Path]
) -> Iterator[Callable[..., Daemon]]:
    """Start daemons for all tests of a file."""
    with starting(text_dir, folders) as start:
        yield start


@contextmanager
def starting(text_dir: Path, folders: Callable[[], Path]) -> Iterator[Callable[..., Daemon]]:
    started: list[Daemon] = []

    def start(folder: Path | None = None, **options: Any) -> Daemon:
        started.append(Daemon(folder or folders(), text_dir, **options))
        return started[-1]

    yield start
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.end()
