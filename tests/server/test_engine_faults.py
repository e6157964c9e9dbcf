"""The engine dies, hangs, or fails one request: every client hears of it, and it goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.fake_engine import BLOCK, CRASH, NAN
from tests.server.harness import Client, Daemon, Gate, alive, until

Start = Callable[..., Daemon]


def open_streams(client: Client, count: int) -> list[str]:
    """Requests that run, each with a first token."""
    ids = [f"s{at}" for at in range(count)]
    for id in ids:
        client.send(type="generate", id=id, prompt="abc", params={"max_tokens": 200})
    for id in ids:
        client.until("delta", id=id)
    return ids


def ends(client: Client, ids: list[str]) -> dict[str, list[str]]:
    """The terminal frames of these requests, until each has one: their codes."""
    found: dict[str, list[str]] = {id: [] for id in ids}
    while not all(found.values()):
        frame = client.until("done", "error")
        found[frame["id"]].append(frame.get("code", "done"))
    return found


def test_a_killed_engine_ends_what_had_begun_and_comes_back(start: Start) -> None:
    daemon = start(engine={"step_s": 0.005, "max_num_seqs": 3})
    with daemon.client() as client, daemon.client(json_frames=False) as other:
        before = client.status()
        streams = open_streams(client, 3)
        for id in ("q0", "q1"):
            other.send(type="generate", id=id, prompt="abc", params={"max_tokens": 20})
            other.until("accepted", id=id)
        os.kill(before["engine_pid"], signal.SIGKILL)
        assert ends(client, streams) == {id: ["engine_failed"] for id in streams}
        refused = client.generate("early", prompt="abc")[-1]
        assert (refused["code"], refused["retryable"]) == ("engine_failed", True)
        assert refused["retry_after_ms"] > 0
        down = client.status()
        assert down["state"] in ("failed", "loading")
        assert down["requests"]["waiting"] == 2
        assert ends(other, ["q0", "q1"]) == {id: ["done"] for id in ("q0", "q1")}
        after = daemon.until_state("ready")
        assert after["engine_pid"] != before["engine_pid"]
        assert after["boot_id"] == before["boot_id"]
        assert after["requests"]["failed_total"] == 3
        again = client.generate("s0", prompt="abc", params={"max_tokens": 3})
        assert again[-1]["type"] == "done"
    daemon.until_quiet()
    assert daemon.stop()[0] == 0


def test_a_step_that_raises_is_a_dead_engine(start: Start) -> None:
    daemon = start()
    with daemon.client() as client:
        frames = client.generate("a", prompt="abc", params={"seed": CRASH})
        assert frames[-1]["code"] == "engine_failed"
        assert "the spell says so" in frames[-1]["message"]
        daemon.until_state("ready")
        assert client.generate("b", prompt="abc", params={"max_tokens": 2})[-1]["type"] == "done"
    daemon.stop()


def test_nan_fails_its_own_request_only(start: Start) -> None:
    daemon = start()
    with daemon.client() as client:
        engine = client.status()["engine_pid"]
        client.send(type="generate", id="good", prompt="abc", params={"max_tokens": 60})
        client.send(type="generate", id="bad", prompt="abc", params={"seed": NAN})
        assert ends(client, ["good", "bad"]) == {"good": ["done"], "bad": ["invalid_logits"]}
        assert client.status()["engine_pid"] == engine
    assert daemon.until_quiet()["requests"]["failed_total"] == 1
    daemon.stop()


def test_a_step_that_hangs_is_reported_as_stalled(start: Start, gate: Gate) -> None:
    daemon = start(engine={"block_gate": gate.path}, stall_s=0.3)
    with daemon.client() as client:
        client.send(type="generate", id="a", prompt="abc", params={"seed": BLOCK, "max_tokens": 5})
        stalled = daemon.until_state("stalled")
        assert "0.3 s" in stalled["reason"]
        gate.open()
        assert client.rest("a")[-1]["type"] == "done"
        ready = daemon.until_state("ready")
        assert "reason" not in ready
        assert ready["engine_pid"] == stalled["engine_pid"]
    daemon.stop()


def test_it_gives_up_after_five_failures_in_a_row(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    # the engine dies while loading, so no try waits for a model
    daemon = start(wait=False, engine={"broken": "out of luck", "log_starts": str(log)})
    assert "5 times in a row" in daemon.ready_line()
    code, errors = daemon.end()
    assert code == 1
    assert errors.splitlines()[-1].startswith("pagedd: the engine failed 5 times in a row: ")
    assert "out of luck" in errors.splitlines()[-1]
    assert log.read_text().count("start") == 5


def test_a_bad_model_is_one_line_and_no_second_try(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    daemon = start(wait=False, engine={"missing": True, "log_starts": str(log)})
    assert daemon.ready_line() == "no model at some-model\n"
    assert daemon.end() == (1, "pagedd: no model at some-model\n")
    assert log.read_text() == "start\n"


def test_while_it_loads_status_works_and_requests_are_told(start: Start, gate: Gate) -> None:
    daemon = start(wait=False, engine={"load_gate": gate.path})
    daemon.until_it_listens()
    with daemon.client() as client:
        assert (client.hello["model"], client.hello["max_model_len"]) == ("some-model", 0)
        status = client.status()
        assert (status["state"], status["model"]) == ("loading", "some-model")
        refused = client.generate("a", prompt="abc")[-1]
        assert (refused["code"], refused["retryable"]) == ("engine_failed", True)
        assert "loading" in refused["message"]
        gate.open()
        assert daemon.ready_line() == "ready\n"
        assert client.generate("a", prompt="abc", params={"max_tokens": 1})[-1]["type"] == "done"
    daemon.stop()


@pytest.mark.parametrize("loading", [True, False])
def test_no_engine_outlives_its_daemon(start: Start, gate: Gate, loading: bool) -> None:
    daemon = start(wait=not loading, engine={"load_gate": gate.path if loading else None})
    daemon.until_it_listens()
    engine = until(lambda: daemon.status()["engine_pid"], "an engine")
    daemon.process.kill()
    daemon.end()
    until(lambda: not alive(engine), "the engine to end")
