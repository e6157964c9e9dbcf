"""Fixtures: a fake daemon on a socket in a private home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import environment


@pytest.fixture
def daemon(home: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(home / "fake.sock").serving() as running:
        yield running


@pytest.fixture
def env(home: Path, daemon: FakeDaemon) -> dict[str, str]:
    """An environment whose commands find the fake daemon."""
    return environment(home, PAGEDD_URL=daemon.url)
