"""``timeout_s``: a request ends in time, wherever it is, and exactly once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from pagedd.protocol import MAX_TIMEOUT_S
from tests.engine.fake_engine import BLOCK, SLOW
from tests.server.harness import Client, Daemon, Frame, Gate, until

Start = Callable[..., Daemon]
SHORT_S = 0.2
ROOMY_S = 1.5  # more than it takes to give way, less than what one gives way to takes


def ask(client: Client, id: str, timeout_s: float | None = SHORT_S, **params: Any) -> None:
    fields = {} if timeout_s is None else {"timeout_s": timeout_s}
    params = {"max_tokens": 200, "seed": SLOW, **params}
    client.send(type="generate", id=id, prompt="abc", params=params, **fields)


def check_expired(frame: Frame, timeout_s: float = SHORT_S) -> None:
    assert (frame["type"], frame["code"]) == ("error", "deadline_exceeded")
    assert not frame["retryable"]
    assert f"{timeout_s:g} s" in frame["message"]


def nothing_more(client: Client, id: str) -> None:
    """Neither a frame of the request, nor a use for its id."""
    client.send(type="cancel", id=id)
    frames = [client.until("error", "done", "delta")]
    assert [(frame["type"], frame.get("ref")) for frame in frames] == [("error", id)]


def test_a_running_request_ends_and_gives_its_pages_back(start: Start) -> None:
    daemon = start()
    with daemon.client() as client:
        ask(client, "a")
        frames = client.rest("a")
        assert {"started", "delta"} <= {frame["type"] for frame in frames}
        check_expired(frames[-1])
        nothing_more(client, "a")
        quiet = daemon.until_quiet()
        assert quiet["pages"]["owned"] == quiet["requests"]["running"] == 0
        client.send(type="explain", id="a")
        told = client.until("explanation")
        assert [record["kind"] for record in told["reasons"]][-1] == "failed"
        assert told["reasons"][-1]["reason"] == "deadline_exceeded"
        assert client.generate("a", prompt="x", params={"max_tokens": 1})[-1]["type"] == "done"
    assert daemon.stop()[0] == 0


def test_a_waiting_request_ends_and_those_behind_it_go_on(start: Start) -> None:
    daemon = start(engine={"max_num_seqs": 1})
    with daemon.client() as client:
        ask(client, "runs", None, max_tokens=40)
        client.until("delta", id="runs")
        ask(client, "waits")
        ask(client, "next", None, max_tokens=1)
        ends = [client.until("error", "done") for _ in range(3)]
        assert [frame["id"] for frame in ends] == ["waits", "runs", "next"]
        check_expired(ends[0])
    daemon.until_quiet()
    daemon.stop()


@pytest.mark.parametrize(("mode", "state"), [("swap", "swapped"), ("recompute", "preempted")])
def test_a_request_that_gave_way_ends(start: Start, mode: str, state: str) -> None:
    engine = {"max_num_seqs": 1, "num_host_pages": 64}
    daemon = start(engine=engine, config={"preemption_mode": mode})
    with daemon.client() as client:
        ask(client, "low", ROOMY_S)
        client.until("delta", id="low")
        client.send(
            type="generate",
            id="urgent",
            prompt="abc",
            priority=-1,
            params={"max_tokens": 250, "seed": SLOW},
        )
        client.until("preempted", id="low")
        check_expired(client.until("error"), ROOMY_S)
        client.send(type="cancel", id="urgent")
        assert client.until("done")["id"] == "urgent"
    quiet = daemon.until_quiet()
    assert quiet["host_pages"]["swapped"] == 0
    daemon.stop()


def test_a_request_in_a_step_that_hangs_ends(start: Start, gate: Gate) -> None:
    daemon = start(engine={"block_gate": gate.path})
    with daemon.client() as client:
        ask(client, "a", seed=BLOCK)
        check_expired(client.until("error"))
        gate.open()
        daemon.until_quiet()
        nothing_more(client, "a")
    daemon.stop()


def test_a_request_that_is_tokenised_or_waits_for_that_ends(start: Start) -> None:
    """Two are tokenised at a time, and a third waits for its turn."""
    daemon = start(engine={"max_model_len": 4_000_000, "num_pages": 1_000_000})
    with daemon.client() as client:
        long = "".join(chr(0x4E00 + at % 5000) for at in range(400_000))
        for id in ("a", "b", "c"):
            client.send(type="generate", id=id, prompt=long, timeout_s=0.05)
        ends = [client.until("error", "done") for _ in range(3)]
        assert {frame["id"] for frame in ends} == {"a", "b", "c"}
        assert {frame["code"] for frame in ends} == {"deadline_exceeded"}
        nothing_more(client, "c")
    daemon.stop()


def test_time_counts_from_the_arrival_not_from_the_engine(start: Start, gate: Gate) -> None:
    """While there is no engine too: what waits for another one ends in time."""
    daemon = start(wait=False, engine={"load_gate": gate.path, "max_num_seqs": 1})
    daemon.until_it_listens()
    gate.open()
    assert daemon.ready_line() == "ready\n"
    with daemon.client() as client:
        ask(client, "runs", None)
        client.until("delta", id="runs")
        ask(client, "waits", 0.6)
        until(lambda: client.status()["requests"]["waiting"] == 1, "the queue")
        os.kill(client.status()["engine_pid"], signal.SIGKILL)
        ends = [client.until("error") for _ in range(2)]
        assert [(each["id"], each["code"]) for each in ends] == [
            ("runs", "engine_failed"),
            ("waits", "deadline_exceeded"),
        ]
        assert client.status()["requests"]["waiting"] == 0
        gate.open()
        daemon.until_state("ready")
    daemon.until_quiet()
    daemon.stop()


def test_the_daemon_has_a_limit_for_those_that_bring_none(start: Start) -> None:
    daemon = start(request_timeout=SHORT_S)
    with daemon.client() as client:
        ask(client, "default", None)
        ask(client, "own", 60.0, max_tokens=40)
        check_expired(client.until("error", id="default"))
        assert client.rest("own")[-1]["type"] == "done"
    daemon.stop()


@pytest.mark.parametrize("value", [0, -1, MAX_TIMEOUT_S + 1, "5", True, [], 1e400])
def test_a_limit_that_is_none_is_refused_by_name(daemon: Daemon, value: Any) -> None:
    with daemon.client() as client:
        frame = {"type": "generate", "id": "a", "prompt": "x", "timeout_s": value}
        client.send_raw(json.dumps(frame))
        refused = client.until("error")
        assert refused["code"] == "bad_request"
        assert "timeout_s" in refused["message"]


def test_a_limit_that_is_kept_changes_nothing(daemon: Daemon) -> None:
    with daemon.client() as client:
        for limit in (MAX_TIMEOUT_S, 30, None):
            frames = client.generate(
                "a", prompt="abc", params={"max_tokens": 3}, timeout_s=limit, stream=False
            )
            assert frames[-1]["choices"][0]["finish_reason"] == "length"
    daemon.until_quiet()
