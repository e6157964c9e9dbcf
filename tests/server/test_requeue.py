"""Requests that outlive their engine: what had not begun is given to the next one, in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagedd.server.held import MAX_RESTARTS
from tests.engine.fake_engine import BLOCK, CRASH, SLOW
from tests.server.harness import Client, Daemon, Frame, Gate, alive, until

Start = Callable[..., Daemon]


def ask(client: Client, id: str, max_tokens: int = 5, **fields: Any) -> None:
    params = {"max_tokens": max_tokens, **fields.pop("params", {})}
    prompt = {"prompt_tokens": tokens_of(id)} if "prompt" not in fields else {}
    client.send(type="generate", id=id, params=params, **prompt, **fields)


def tokens_of(id: str) -> list[int]:
    """Tokens and not text: what is tokenised in threads may come in another order."""
    return [*map(ord, f"text of {id}")]


def kill_engine(client: Client) -> None:
    os.kill(client.status()["engine_pid"], signal.SIGKILL)


def occupy(client: Client, id: str = "runs") -> None:
    """A request that has begun and holds a slot for a while."""
    ask(client, id, 200, params={"seed": SLOW})
    client.until("delta", id=id)


def histories(client: Client, ids: list[str]) -> dict[str, list[Frame]]:
    """All frames of these requests, to the last of them, in the order of their first."""
    found: dict[str, list[Frame]] = {}
    open = set(ids)
    while open:
        frame = client.receive()
        if frame.get("id") in ids:
            found.setdefault(frame["id"], []).append(frame)
            if frame["type"] in ("done", "error"):
                open.remove(frame["id"])
    return found


def types(frames: list[Frame]) -> list[str]:
    """Of each frame, runs of deltas as one."""
    names = [frame["type"] for frame in frames]
    return [name for at, name in enumerate(names) if name != "delta" or names[at - 1] != "delta"]


def text_of(frames: list[Frame]) -> str:
    return "".join(frame["text"] for frame in frames if frame["type"] == "delta")


def test_what_waits_is_served_by_the_next_engine_in_order_and_told_nothing_twice(
    start: Start,
) -> None:
    daemon = start(engine={"max_num_seqs": 1})
    with daemon.client() as client:
        occupy(client)
        waiting = [f"q{at}" for at in range(6)]
        for at, id in enumerate(waiting):
            ask(client, id, 20, priority=0 if at == 3 else 1)
        until(lambda: client.status()["requests"]["waiting"] == 6, "the queue")
        kill_engine(client)
        assert client.until("error", id="runs")["code"] == "engine_failed"
        found = histories(client, waiting)
        assert list(found) == ["q3", "q0", "q1", "q2", "q4", "q5"], "in the order of their first"
        texts = {id: text_of(frames) for id, frames in found.items()}
        for frames in found.values():
            # they were accepted while the queue was awaited, and are not accepted once more
            assert types(frames) == ["started", "delta", "done"]
            assert frames[-1]["ledger"]["queued_ms"] > 0
        for id, text in texts.items():
            again = client.generate(id, prompt_tokens=tokens_of(id), params={"max_tokens": 20})
            assert text_of(again) == text
    assert daemon.until_quiet()["requests"]["failed_total"] == 1
    assert daemon.stop()[0] == 0


def test_a_prefill_that_was_cut_short_begins_again(start: Start, gate: Gate) -> None:
    daemon = start(engine={"block_gate": gate.path})
    with daemon.client() as client:
        reference = text_of(client.generate("ref", prompt="once more", params={"max_tokens": 7}))
        # the first step with it hangs, so nothing of it was ever drawn
        ask(client, "a", 7, prompt="once more", params={"seed": BLOCK})
        ask(client, "whole", 7, prompt="once more", stream=False)
        first = client.status()["engine_pid"]
        kill_engine(client)
        until(lambda: not alive(first), "its end, or it would come through the gate")
        gate.open()  # for the second engine
        found = histories(client, ["a", "whole"])
        assert text_of(found["a"]) == reference
        assert found["whole"][-1]["choices"][0]["text"] == reference
        assert next(each["seq"] for each in found["a"] if each["type"] == "delta") == 1
    daemon.until_quiet()
    daemon.stop()


def test_an_answer_that_comes_as_a_whole_begins_anew_from_its_middle(start: Start) -> None:
    """Its client has seen nothing of it."""
    daemon = start()
    with daemon.client() as client:
        ask(client, "a", 60, stream=False, params={"seed": SLOW, "n": 2, "logprobs": 1})
        client.until("started", id="a")
        kill_engine(client)
        done = client.until("done", "error", id="a")
        assert done["type"] == "done"
        assert done["usage"]["completion_tokens"] == 120
        again = client.generate("r", prompt_tokens=tokens_of("a"), params={"max_tokens": 60})
        reference = text_of(again)
        for choice in done["choices"]:
            assert choice["text"] == reference
            assert len(choice["tokens"]) == len(choice["logprobs"]) == 60
    daemon.until_quiet()
    daemon.stop()


def test_more_may_wait_again_than_the_queue_takes(start: Start) -> None:
    daemon = start(engine={"max_num_seqs": 2}, config={"max_queue": 3})
    with daemon.client() as client:
        whole = {"stream": False, "params": {"seed": SLOW}}
        for id in ("r0", "r1"):
            ask(client, id, 40, **whole)
            client.until("started", id=id)
        for id in ("q0", "q1", "q2"):
            ask(client, id, 3)
        until(lambda: client.status()["requests"]["waiting"] == 3, "the queue")
        kill_engine(client)
        found = histories(client, ["r0", "r1", "q0", "q1", "q2"])
        assert {frames[-1]["type"] for frames in found.values()} == {"done"}
    daemon.stop()


def test_a_request_that_kills_every_engine_is_given_up(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    daemon = start(engine={"log_starts": str(log)})
    with daemon.client() as client:
        frames = client.generate("a", prompt="abc", params={"seed": CRASH})
        assert frames[-1]["code"] == "engine_failed"
        assert frames[-1]["retryable"]
        daemon.until_state("ready")
        assert log.read_text().count("start") == 1 + MAX_RESTARTS + 1
        assert client.generate("b", prompt="abc", params={"max_tokens": 2})[-1]["type"] == "done"
    daemon.stop()


def held(daemon: Daemon, client: Client, count: int) -> None:
    """So many requests wait while there is no engine: the second one waits at its gate."""
    occupy(client)
    for at in range(count):
        ask(client, f"q{at}")
    until(lambda: client.status()["requests"]["waiting"] == count, "the queue")
    kill_engine(client)
    assert client.until("error")["id"] == "runs"
    daemon.until_state("loading")


@pytest.fixture
def gated(start: Start, gate: Gate) -> Daemon:
    daemon = start(wait=False, engine={"load_gate": gate.path, "max_num_seqs": 1})
    daemon.until_it_listens()
    gate.open()
    assert daemon.ready_line() == "ready\n"
    return daemon


def test_without_an_engine_what_waits_can_be_cancelled_left_and_made_urgent(
    gated: Daemon, gate: Gate
) -> None:
    with gated.client() as client:
        with gated.client() as leaving:
            held(gated, client, 3)
            refused = leaving.generate("new", prompt="abc")[-1]
            assert (refused["code"], refused["retryable"]) == ("engine_failed", True)
            client.send(type="cancel", id="q0")
            done = client.until("done")
            assert (done["id"], done["choices"][0]["finish_reason"]) == ("q0", "cancelled")
            client.send(type="reprioritize", id="q2", priority=-5)
            client.send(type="explain", id="q2")
            told = client.until("explanation")
            assert told["state"] == "waiting"
            assert "waits for another engine" in told["reasons"][0]["text"]
            status = client.status()
            assert status["requests"]["waiting"] == 2
            assert status["requests"]["cancelled_total"] == 1
        gate.open()
        order = [client.until("started")["id"], client.until("started")["id"]]
        assert order == ["q2", "q1"]
        client.rest("q1")
    gated.until_quiet()
    assert gated.stop()[0] == 0


def test_a_client_that_leaves_takes_what_waits_along(gated: Daemon, gate: Gate) -> None:
    with gated.client() as client:
        held(gated, client, 2)
    with gated.client() as client:
        until(lambda: client.status()["requests"]["waiting"] == 0, "nobody to wait")
        gate.open()
        gated.until_state("ready")
        assert client.generate("z", prompt="z", params={"max_tokens": 1})[-1]["type"] == "done"
    assert gated.until_quiet()["requests"]["finished_total"] == 1
    gated.stop()


def test_a_drain_waits_for_the_next_engine_within_its_limits(gated: Daemon, gate: Gate) -> None:
    with gated.client() as client:
        held(gated, client, 2)
        gated.signal(signal.SIGTERM)
        until(lambda: client.status()["state"] == "draining", "the drain")
        gate.open()
        assert client.rest("q0")[-1]["type"] == "done"
        assert client.rest("q1")[-1]["type"] == "done"
    assert gated.end()[0] == 0


def test_when_no_engine_comes_any_more_all_are_told_and_the_daemon_fails(
    start: Start, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    daemon = start(engine={"max_num_seqs": 1, "broken_from": str(broken)}, drain_timeout=1000.0)
    with daemon.client() as client:
        occupy(client)
        for id in ("q0", "q1"):
            ask(client, id)
        until(lambda: client.status()["requests"]["waiting"] == 2, "the queue")
        broken.touch()
        kill_engine(client)
        for id in ("runs", "q0", "q1"):
            error = client.until("error", id=id)
            assert error["code"] == "engine_failed"
        assert "times in a row" in error["message"]
    code, errors = daemon.end()
    assert code == 1
    assert errors.splitlines()[-1].startswith("pagedd: the engine failed 5 times in a row")


def test_what_was_being_tokenised_when_the_engine_died_waits_too(start: Start) -> None:
    daemon = start(engine={"max_model_len": 100_000, "num_pages": 20_000, "step_s": 0.0})
    long = "word " * 60_000
    with daemon.client() as client:
        pid = client.status()["engine_pid"]
        for at in range(4):
            client.send(type="generate", id=f"t{at}", prompt=long, params={"max_tokens": 1})
        os.kill(pid, signal.SIGKILL)
        found = histories(client, [f"t{at}" for at in range(4)])
        assert {frames[-1].get("code", "done") for frames in found.values()} <= {
            "done",
            "prompt_too_long",
        }
    daemon.stop()


def test_a_request_that_kills_every_engine_takes_nobody_along_that_waits(
    start: Start, tmp_path: Path
) -> None:
    """From the second death on, those that it may be are tried one after another."""
    log = tmp_path / "starts"
    daemon = start(engine={"log_starts": str(log), "max_num_seqs": 4})
    with daemon.client() as client:
        ids = [f"q{at}" for at in range(9)]
        for at, id in enumerate(ids):
            # a whole answer: what was drawn for it is lost with no harm
            ask(client, id, 4, stream=False, params={"seed": CRASH} if at == 4 else {})
        found = histories(client, ids)
        ends = {id: frames[-1].get("code", frames[-1]["type"]) for id, frames in found.items()}
        assert ends.pop("q4") == "engine_failed"
        assert set(ends.values()) == {"done"}
        status = daemon.until_state("ready")
        assert log.read_text().count("start") == 1 + MAX_RESTARTS + 1
    assert status["requests"]["failed_total"] == 1
    assert daemon.until_quiet()["requests"]["finished_total"] == 8
    assert daemon.stop()[0] == 0
