"""A daemon that is forked off the nursery is the process that a Python started for it would be."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.server import harness
from tests.server.harness import Daemon, until
from tests.server.hatched import Nursery

Start = Callable[..., Daemon]
# what a process has from its parent or says of its signals and threads, in /proc/PID/status
LIKE = ("Umask", "PPid", "Threads", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Groups")


def facts(pid: int) -> dict[str, object]:
    """What must not depend on how it was started."""
    folder = Path(f"/proc/{pid}")
    lines = (line.partition(":") for line in (folder / "status").read_text().splitlines())
    links = {}
    for fd in (folder / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links[int(fd.name)] = os.readlink(fd)
    return {
        **{name: value.strip() for name, _, value in lines if name in LIKE},
        "limits": (folder / "limits").read_text(),
        "cwd": os.readlink(folder / "cwd"),
        "exe": os.readlink(folder / "exe"),
        "group and session": (os.getpgid(pid), os.getsid(pid)),
        "standard input and output": (links[0], links[1]),
        # sockets and pipes have numbers, and each daemon has a folder
        "descriptors": sorted(Path(link).name.partition("[")[0] for link in links.values()),
    }


@pytest.mark.parametrize("preloaded", [False, True], ids=["started", "forked"])
def test_it_serves_and_ends_like_any_process(start: Start, preloaded: bool) -> None:
    daemon = start(preloaded=preloaded)
    assert daemon.process.poll() is None
    with daemon.client() as client:
        assert client.generate("a", prompt="abc", params={"max_tokens": 2})[-1]["type"] == "done"
        assert client.status()["pid"] == daemon.process.pid
    code, errors = daemon.stop()
    assert code == 0
    assert "SIGTERM: shutting down" in errors
    assert daemon.process.poll() == daemon.process.wait(1) == daemon.process.returncode == 0
    daemon.signal(signal.SIGKILL)  # which reaches nobody any more


@pytest.mark.parametrize("preloaded", [False, True], ids=["started", "forked"])
def test_how_it_died_is_known(start: Start, preloaded: bool) -> None:
    daemon = start(preloaded=preloaded)
    refused = start(Path(daemon.settings.socket).parent, wait=False, preloaded=preloaded)
    code, errors = refused.end()
    assert code > 0
    assert errors.startswith("pagedd: ")
    daemon.process.kill()
    assert daemon.end()[0] == -signal.SIGKILL


def test_both_are_alike(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "nursery", cache(Nursery))  # older than what is set below
    monkeypatch.setenv("UNSET", "gone")
    start()
    monkeypatch.delenv("UNSET")
    monkeypatch.setenv("HATCHED", "a value \udc80")
    daemons = [start(preloaded=preloaded) for preloaded in (False, True)]
    started, forked = (daemon.process.pid for daemon in daemons)
    until(lambda: facts(started) == facts(forked), "the same facts")
    assert facts(forked)["PPid"] == str(os.getpid())
    engines = [daemon.status()["engine_pid"] for daemon in daemons]
    # what was set since is handed down to the last
    theirs, own = (set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")) for pid in engines)
    assert own == theirs >= {b"HATCHED=a value \x80"}
    assert b"UNSET=gone" not in own
