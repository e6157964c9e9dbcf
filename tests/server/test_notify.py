"""What a service manager hears: readiness, reloads, and that the daemon is alive."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagedd.server.notify import Notifier
from tests.server.harness import PATIENCE_S, Daemon

Start = Callable[..., Daemon]


class Manager:
    """The end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(PATIENCE_S)
        self.socket.bind(str(path))

    def hear(self, name: str) -> dict[str, str]:
        """The next message with this name; those before it are dropped."""
        while True:
            fields = dict(
                line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n")
            )
            if name in fields:
                return fields

    def silent(self, seconds: float) -> bool:
        """Nothing comes for so long."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(4096)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        return False

    def drain(self) -> None:
        while not self.silent(0.01):
            pass


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    manager = Manager(tmp_path / "n")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
    yield manager
    manager.socket.close()


def test_the_watchdog_is_fed_while_the_engine_moves_and_not_while_it_stands_still(
    start: Start, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    daemon = start(backoff_s=0.5)
    for _ in range(3):
        assert manager.hear("WATCHDOG")["WATCHDOG"] == "1"
    engine = daemon.status()["engine_pid"]
    os.kill(engine, signal.SIGSTOP)
    daemon.until_state("stalled")
    manager.drain()
    assert manager.silent(0.4), "it is not fed: the manager restarts the daemon"
    os.kill(engine, signal.SIGCONT)
    manager.hear("WATCHDOG")
    os.kill(engine, signal.SIGKILL)
    manager.hear("WATCHDOG")  # another engine is on its way
    manager.hear("READY")
    assert daemon.stop()[0] == 0


def test_a_reload_has_a_beginning_and_an_end(start: Start, manager: Manager) -> None:
    daemon = start()
    manager.hear("READY")
    daemon.signal(signal.SIGHUP)
    reloading = manager.hear("RELOADING")
    assert reloading["RELOADING"] == "1"
    assert reloading["MONOTONIC_USEC"].isdecimal()
    assert manager.hear("READY") == {"READY": "1"}
    daemon.stop()
    assert manager.hear("STOPPING") == {"STOPPING": "1"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_a_watchdog_for_another_process_is_not_fed(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: float | None
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent")
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Notifier.from_environment().watchdog_s == expected


def test_a_manager_that_does_not_read_holds_nothing_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "n"))
        notifier = Notifier(str(tmp_path / "n"))
        for _ in range(3):
            notifier.send(STATUS="x" * 60_000)
        deaf.settimeout(0.1)
        assert deaf.recv(1 << 16).startswith(b"STATUS=x")
    notifier.send(READY=1)  # it is gone
