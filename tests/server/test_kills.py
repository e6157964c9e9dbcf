"""Something is killed at a random moment under load: nothing hangs, nothing is left over.

``KILL_SEED=N`` repeats a run; ``-m slow`` takes 50 rounds.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import psutil
import pytest

from tests.server.harness import ROOT, Daemon, Frame, alive, until
from tests.server.kill_load import Load

Start = Callable[..., Daemon]

PROMISE_S = 5.0  # within which all that a cause touches has ended, and health tells the truth
ENGINE = {"step_s": 0.002, "max_num_seqs": 6, "num_pages": 40, "num_host_pages": 20, "budget": 48}
PROBE = {"prompt_tokens": [1, 2, 3, 4, 5], "params": {"max_tokens": 4}}


class Stage:
    """A daemon that is killed and started again on the same socket, and all that belongs to it."""

    def __init__(self, folder: Path, start: Start, *, http: bool) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._start = start
        self._http = http
        self.pids: set[int] = set()
        self.start()
        self.reference = self.probe()

    def start(self) -> None:
        """On the same socket, whatever a killed one has left there."""
        self.daemon = self._start(
            self.folder,
            engine=ENGINE,
            config={"max_queue": 30},
            log_file=str(self.log),
            log_max_size=1 << 20,
            log_keep=1,
            listen=None,
            http="127.0.0.1:0" if self._http else None,
        )
        self.pids |= {self.daemon.process.pid, self.status()["engine_pid"]}
        self.fds = self._fds()

    def status(self) -> Frame:
        return self.daemon.status()

    @property
    def http(self) -> str | None:
        if not self._http:
            return None
        return str(self.status()["endpoints"][-1]).removeprefix("http://")

    def health(self) -> tuple[int, str]:
        """What ``GET /health`` says; the state where there is no HTTP."""
        if not self._http:
            state = self.status()["state"]
            return (200 if state == "ready" else 503), state
        address = self.http
        assert address is not None
        connection = http.client.HTTPConnection(address, timeout=PROMISE_S)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def probe(self) -> str:
        """A short request's text."""
        with self.daemon.client() as client:
            frames = client.generate("probe", **PROBE)
        assert frames[-1]["type"] == "done", frames[-1]
        return "".join(frame["text"] for frame in frames if frame["type"] == "delta")

    def check_whole(self) -> None:
        """As if nothing had happened: pages, requests, processes, files, descriptors, health."""
        within(lambda: self.status()["state"] == "ready", "the state ready")
        assert self.health()[0] == 200
        self.daemon.until_quiet()
        assert self.probe() == self.reference
        quiet = self.daemon.until_quiet()
        assert quiet["pages"]["owned"] == quiet["pages"]["shared"] == 0
        self.pids.add(quiet["engine_pid"])
        children = psutil.Process(self.daemon.process.pid).children(recursive=True)
        assert [child.pid for child in children] == [quiet["engine_pid"]]
        until(lambda: self._fds() == self.fds, f"{self.fds} descriptors, not {self._fds()}")
        left = {path.name for path in self.folder.iterdir()} - {"log", "log.1"}
        assert left == {"d.sock", "d.sock.lock"}
        until(
            lambda: not [pid for pid in self.others() if alive(pid)], "the end of those before it"
        )

    def others(self) -> set[int]:
        """Processes that have to be gone."""
        return self.pids - {self.daemon.process.pid, self.status()["engine_pid"]}

    def end(self) -> None:
        """An orderly end: nothing is left but the log."""
        code, errors = self.daemon.stop()
        assert (code, errors) == (0, "")
        assert not [pid for pid in self.pids if alive(pid)]
        assert {path.name for path in self.folder.iterdir()} <= {"log", "log.1"}
        for path in self.folder.iterdir():
            assert "Traceback" not in path.read_text()

    def _fds(self) -> int:
        """Descriptors of the daemon, less that of the connection that asks."""
        self.daemon.until_quiet()
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))


def within(condition: Callable[[], Any], what: str) -> Any:
    """As ``until``, in the time that is promised."""
    deadline = time.monotonic() + PROMISE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {PROMISE_S:g} s"
        time.sleep(0.02)
    return value


def engine_killed(stage: Stage, load: Load, random: Random) -> None:
    engine = stage.status()["engine_pid"]
    os.kill(engine, signal.SIGKILL)
    told = within(
        lambda: (s := stage.status())["engine_pid"] != engine and s, "word of the engine's death"
    )
    if told["state"] != "ready":
        assert told["state"] in ("failed", "loading")
        code, _ = stage.health()
        assert code == 503 or stage.status()["state"] == "ready"
    load.stop(PROMISE_S)


def engine_stopped(stage: Stage, load: Load, random: Random) -> None:
    engine = stage.status()["engine_pid"]
    os.kill(engine, signal.SIGSTOP)
    stalled = within(
        lambda: (s := stage.status())["state"] == "stalled" and s, "word of the engine's stop"
    )
    assert "SIGSTOP" in stalled["reason"]
    assert stage.health()[0] == 503
    os.kill(engine, random.choice([signal.SIGCONT, signal.SIGKILL]))
    load.stop(PROMISE_S)


def daemon_killed(stage: Stage, load: Load, random: Random) -> None:
    engine = stage.status()["engine_pid"]
    stage.daemon.process.kill()
    load.stop(PROMISE_S)
    stage.daemon.end()
    within(lambda: not alive(engine), "the engine's end")
    stage.start()


def client_killed(stage: Stage, load: Load, random: Random) -> None:
    command = [sys.executable, "-m", "tests.server.hungry_client", stage.daemon.settings.socket]
    clients = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == b"eating\n"
    connections = stage.status()["connections"]
    for client in clients:
        client.kill()
        client.communicate()
    within(lambda: stage.status()["connections"] <= connections - 2, "fewer connections")
    load.stop(PROMISE_S)


def disk_full(stage: Stage, load: Load, random: Random) -> None:
    """No file of the daemon may grow, as on a full disk; then there is room again."""
    pid = stage.daemon.process.pid
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
    stage.daemon.signal(signal.SIGUSR1)
    if random.random() < 0.5:
        engine_killed(stage, load, random)
    else:
        load.stop(PROMISE_S)
    stage.check_whole()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
    stage.daemon.signal(signal.SIGHUP)
    until(lambda: "lines could not be written here" in stage.log.read_text(), "word of it")


CAUSES = (engine_killed, daemon_killed, client_killed, disk_full, engine_stopped)


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("KILL_SEED", SystemRandom().randrange(1 << 30)))
    print(f"KILL_SEED={seed}")
    return seed


@pytest.fixture
def stage(start: Start, folders: Callable[[], Path]) -> Iterator[Stage]:
    stage = Stage(folders(), start, http=True)
    yield stage
    stage.end()


def play(stage: Stage, seed: int, rounds: int) -> None:
    random = Random(seed)
    order = [CAUSES[at % len(CAUSES)] for at in range(rounds)]
    random.shuffle(order)
    for at, cause in enumerate(order):
        load = Load(stage.daemon.settings.socket, stage.http, random.randrange(1 << 30))
        wanted = random.randint(1, 400)
        print(f"round {at}: {cause.__name__} after {wanted} frames")
        until(lambda load=load, wanted=wanted: load.seen >= wanted, "some load")
        cause(stage, load, random)
        print(json.dumps(load.ends))
        stage.check_whole()


def test_each_cause_once(stage: Stage, seed: int) -> None:
    play(stage, seed, len(CAUSES))


@pytest.mark.slow
def test_fifty_rounds(stage: Stage, seed: int) -> None:
    play(stage, seed, 50)
