"""The state tells within seconds that the engine does not move, and that it does again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.fake_engine import BLOCK, SLOW
from tests.server.harness import Daemon, Gate, until

Start = Callable[..., Daemon]


@pytest.mark.parametrize("load", [False, True])
def test_an_engine_that_was_stopped_is_told(start: Start, load: bool) -> None:
    daemon = start()
    with daemon.client() as client:
        if load:
            client.send(
                type="generate", id="a", prompt="abc", params={"max_tokens": 60, "seed": SLOW}
            )
            client.until("delta", id="a")
        engine = client.status()["engine_pid"]
        os.kill(engine, signal.SIGSTOP)
        stalled = daemon.until_state("stalled")
        assert "SIGSTOP" in stalled["reason"]
        os.kill(engine, signal.SIGCONT)
        ready = daemon.until_state("ready")
        assert ready["engine_pid"] == engine
        if load:
            assert client.rest("a")[-1]["type"] == "done"
    daemon.until_quiet()
    _, errors = daemon.stop()
    assert "the engine moves again" in errors


def test_a_step_that_neither_ends_nor_computes_is_told_although_nobody_waits_any_more(
    start: Start, gate: Gate
) -> None:
    daemon = start(engine={"block_gate": gate.path})
    with daemon.client() as client:
        client.send(type="generate", id="a", prompt="abc", params={"seed": BLOCK}, timeout_s=0.2)
        assert client.until("error")["code"] == "deadline_exceeded"
        client.send(type="generate", id="b", prompt="abc", params={"max_tokens": 2})
        stalled = daemon.until_state("stalled")
        assert "neither reported nor computed" in stalled["reason"]
        gate.open()
        assert client.rest("b")[-1]["type"] == "done"
        daemon.until_state("ready")
    daemon.until_quiet()
    daemon.stop()


def test_what_an_engine_prints_is_in_the_log_in_lines(start: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    log = tmp_path / "log"
    daemon = start(engine={"broken_from": str(broken)}, log_file=str(log), backoff_s=0.5)
    broken.touch()
    os.kill(daemon.status()["engine_pid"], signal.SIGKILL)
    until(lambda: "it is broken now" in log.read_text(), "the traceback")
    broken.unlink()
    daemon.until_state("ready")
    assert daemon.stop() == (0, "")
    lines = log.read_text().splitlines()
    assert all(line[:4].isdigit() for line in lines), "each begins with its time"
    assert any("Traceback (most recent call last)" in line for line in lines)


def test_an_engine_that_answers_may_die_often(start: Start) -> None:
    """Only failures without an answer in between are a reason to give up."""
    daemon = start()
    with daemon.client() as client:
        for at in range(6):
            daemon.until_state("ready")
            done = client.generate(f"a{at}", prompt="abc", params={"max_tokens": 2})
            assert done[-1]["type"] == "done"
            engine = client.status()["engine_pid"]
            os.kill(engine, signal.SIGKILL)
            until(lambda e=engine: client.status()["engine_pid"] not in (0, e), "another engine")
        daemon.until_state("ready")
    assert daemon.stop()[0] == 0
