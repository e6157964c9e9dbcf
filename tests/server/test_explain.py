"""``explain`` over the wire: every state, every way to name a request, who goes meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.engine.fake_engine import BLOCK
from tests.server.harness import Client, Daemon, Frame, Gate, alive, new_id, until

Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def busy(start_for_module: Start) -> Daemon:
    """One slot, and steps long enough to ask during."""
    return start_for_module(engine={"step_s": 0.01, "max_num_seqs": 1})


@pytest.fixture(params=["json", "msgpack"])
def client(request: pytest.FixtureRequest, busy: Daemon) -> Iterator[Client]:
    with busy.client(json_frames=request.param == "json") as client:
        yield client
    busy.until_quiet()


def run(client: Client, id: str, **fields: object) -> None:
    """A request that takes a while, in the batch or in the queue."""
    client.send(**{"type": "generate", "id": id, "prompt": "abc", **long(), **fields})
    client.until("accepted", id=id)


def long(tokens: int = 250) -> Frame:
    return {"params": {"max_tokens": tokens}}


def explain(client: Client, id: str) -> Frame:
    """The explanation, or the error that says why not."""
    client.send(type="explain", id=id)
    frame = client.until("explanation", "error")
    if frame["type"] == "error":
        assert "id" not in frame, "it must not seem to end a request"
        assert frame["ref"] == id
    else:
        assert frame["id"] == id
    return frame


def kinds(explanation: Frame) -> list[str]:
    return [record["kind"] for record in explanation["reasons"]]


def handle_of(explanation: Frame) -> int:
    return explanation["reasons"][0]["handle"]


def test_a_running_request(client: Client) -> None:
    run(client, "runs")
    client.until("delta", id="runs")
    explained = explain(client, "runs")
    assert explained["state"] == "decoding"
    assert kinds(explained) == ["accepted", "admitted", "running"]
    accepted, admitted, running = explained["reasons"]
    assert {record["request"] for record in explained["reasons"]} == {"runs"}
    assert (accepted["queue_position"], accepted["prompt_tokens"]) == (0, 3)
    assert admitted["pages"] == 1
    assert accepted["at"] <= admitted["at"] <= running["at"]
    assert running["tokens"] == 3 + running["generated"]
    assert running["text"].startswith(f"runs (#{running['handle']}) is decoding: ")


def test_a_waiting_request_names_limit_and_holder(client: Client) -> None:
    run(client, "runs")
    run(client, "first")
    run(client, "second")
    explained = explain(client, "second")
    assert explained["state"] == "waiting"
    accepted, waiting, of_first = explained["reasons"]
    assert accepted["kind"] == "accepted"
    holder = explain(client, "runs")["reasons"][-1]
    assert (waiting["kind"], waiting["limit"]) == ("waiting", "slots")
    assert (waiting["needed"], waiting["available"], waiting["short"]) == (1, 0, 1)
    assert (waiting["ahead"], waiting["first"]) == (1, "first")
    assert [held["request"] for held in waiting["holders"]] == ["runs"]
    assert waiting["holders"][0]["handle"] == holder["handle"]
    assert (of_first["kind"], of_first["request"]) == ("waiting", "first")
    assert of_first["handle"] == waiting["first_handle"]


def test_what_the_prompt_is_made_into_tokens_for(client: Client, busy: Daemon) -> None:
    client.send(type="generate", id="long", prompt="x " * 600_000)
    explained = explain(client, "long")
    assert (explained["state"], kinds(explained)) == ("waiting", ["waiting"])
    assert "made into tokens" in explained["reasons"][0]["text"]
    with busy.client() as other:
        again = explain(other, f"#{handle_of(explained)}")
        assert again["reasons"][0]["text"] == explained["reasons"][0]["text"]
        assert explain(other, "long")["state"] == "waiting"
        client.send(type="cancel", id="long")
        client.until("done", id="long")
        assert explain(other, "long")["code"] == "request_not_found"
        assert explain(other, f"#{handle_of(explained)}")["code"] == "request_not_found"


def test_a_request_that_has_ended(client: Client) -> None:
    client.generate("over", prompt="abc", params={"max_tokens": 3})
    explained = explain(client, "over")
    assert explained["state"] == "ended"
    assert kinds(explained) == ["accepted", "admitted", "finished"]
    assert explained["reasons"][-1]["reason"] == "finished"
    assert "eta_ms" not in explained
    run(client, "cut")
    client.send(type="cancel", id="cut")
    client.until("done", id="cut")
    assert explain(client, "cut")["reasons"][-1]["reason"] == "cancelled"


@pytest.mark.parametrize("id", ["nobody", "#0", "#999999", "#-1", "#1x", "# 1", "\x1b[2J"])
def test_what_never_was(client: Client, id: str) -> None:
    assert explain(client, id)["code"] == "request_not_found"


@pytest.mark.parametrize("type", ["explain", "cancel", "reprioritize"])
def test_an_empty_id_names_nothing(client: Client, type: str) -> None:
    client.send(type=type, id="", **({"priority": 1} if type == "reprioritize" else {}))
    error = client.receive()
    assert (error["code"], error["message"][:3]) == ("bad_request", "id:")
    assert "ref" not in error


def test_a_request_of_another_connection(client: Client, busy: Daemon) -> None:
    id = new_id()
    run(client, id)
    client.until("delta", id=id)
    with busy.client() as other:
        assert explain(other, id)["state"] == "decoding"
        explained = explain(other, f"#{handle_of(explain(client, id))}")
        assert explained["reasons"][0]["request"] == id
    client.send(type="cancel", id=id)
    client.until("done", id=id)
    with busy.client() as other:
        assert explain(other, id)["state"] == "ended"


def test_one_id_on_several_connections(client: Client, busy: Daemon) -> None:
    with busy.client() as one, busy.client() as other:
        run(one, "same")
        run(other, "same")
        asked = explain(client, "same")
        assert asked["code"] == "bad_request"
        handles = [handle_of(explain(each, "same")) for each in (one, other)]
        assert asked["message"].endswith(f"by its handle: #{handles[0]}, #{handles[1]}")
        states = [explain(client, f"#{handle}")["state"] for handle in handles]
        assert states == ["decoding", "waiting"]
        run(client, "same")
        mine = explain(client, "same")
        assert handle_of(mine) not in handles, "the own one comes first"
        client.send(type="cancel", id="same")
        client.until("done", id="same")
        ended = explain(client, "same")
        assert (ended["state"], handle_of(ended)) == ("ended", handle_of(mine))


def test_an_own_id_that_looks_like_a_handle_comes_first(client: Client, busy: Daemon) -> None:
    with busy.client() as other:
        run(other, "theirs")
        name = f"#{handle_of(explain(other, 'theirs'))}"
        assert explain(client, name)["reasons"][0]["request"] == "theirs"
        run(client, name)
        assert explain(client, name)["reasons"][0]["request"] == name
        client.send(type="cancel", id=name)
        assert client.until("done", "error")["id"] == name
        assert explain(client, name)["reasons"][0]["request"] == "theirs"
        assert explain(other, "theirs")["state"] in ("prefilling", "decoding")


def stuck(daemon: Daemon, client: Client, id: str = "stuck") -> None:
    """The engine hangs in the first step of a request."""
    client.send(type="generate", id=id, prompt="abc", params={"seed": BLOCK, "max_tokens": 3})
    daemon.until_state("stalled")


def test_the_engine_dies_before_it_answers(start: Start, gate: Gate) -> None:
    daemon = start(engine={"block_gate": gate.path}, stall_s=0.3)
    with daemon.client() as client, daemon.client(json_frames=False) as other:
        stuck(daemon, client)
        other.send(type="explain", id="stuck")
        client.send(type="explain", id="stuck")
        engine = other.status()["engine_pid"]
        os.kill(engine, signal.SIGKILL)
        for asker in (other, client):
            failed = asker.until("error")
            assert (failed["code"], failed["ref"]) == ("engine_failed", "stuck")
            assert "id" not in failed, "the request waits for another engine"
        until(lambda: not alive(engine), "its end")
        gate.open()  # for the next one
        assert client.until("done")["id"] == "stuck"
        explained = explain(client, "stuck")
        assert (explained["state"], kinds(explained)[-1]) == ("ended", "finished")
    daemon.stop()


def test_answers_go_to_who_asked_and_to_nobody_when_that_one_is_gone(
    start: Start, gate: Gate
) -> None:
    daemon = start(engine={"block_gate": gate.path}, stall_s=0.3)
    with daemon.client() as client, daemon.client() as curious:
        stuck(daemon, client)
        with daemon.client() as gone:
            gone.send(type="explain", id="stuck")
            assert gone.status()["state"] == "stalled"
            gone.drop()
        until(lambda: curious.status()["connections"] == 2, "the end of the one that is gone")
        curious.send(type="explain", id="stuck")
        gate.open()
        frames = client.rest("stuck")
        assert [frame["type"] for frame in frames].count("explanation") == 0
        assert frames[-1]["type"] == "done"
        assert curious.receive()["type"] == "explanation"
        assert curious.status()["state"] == "ready"
    daemon.until_quiet()
    assert daemon.stop()[0] == 0


def test_too_many_questions_at_once_are_refused(start: Start, gate: Gate) -> None:
    daemon = start(engine={"block_gate": gate.path}, stall_s=0.3)
    with daemon.client() as client, daemon.client() as other:
        stuck(daemon, client)
        for _ in range(70):
            other.send(type="explain", id="stuck")
        for _ in range(6):
            refused = other.receive()
            assert (refused["code"], refused["ref"]) == ("queue_full", "stuck")
        gate.open()
        assert {other.receive()["type"] for _ in range(64)} == {"explanation"}
        assert explain(other, "stuck")["type"] == "explanation"
        client.rest("stuck")
    daemon.stop()


def test_what_is_short_and_who_holds_it(start: Start) -> None:
    """Checked against the pages that the status counts."""
    daemon = start(engine={"num_pages": 32, "step_s": 0.02}, config={"prefix_cache": False})
    with daemon.client() as client:
        client.send(type="subscribe", topic="events")
        prompts = {"large": 150, "small": 30, "waits": 120}
        for id, tokens in prompts.items():
            params = {"max_tokens": 50}
            client.send(type="generate", id=id, prompt_tokens=[65] * tokens, params=params)
        told = client.until("event")
        while told["kind"] != "waiting" or told["request"] != "waits" or told["limit"] != "pages":
            told = client.until("event")
        explained = explain(client, "waits")
        status = client.status()
        waiting = explained["reasons"][-1]
        assert (explained["state"], waiting["kind"]) == ("waiting", "waiting")
        assert waiting["limit"] == "pages"
        needed = 120 // status["page_size"] + waiting["headroom"]
        assert waiting["needed"] == needed
        assert 0 <= waiting["available"] - status["pages"]["free"] <= 2, "a step or two later"
        assert waiting["short"] == needed - waiting["available"]
        assert [held["request"] for held in waiting["holders"]] == ["large", "small"]
        held = sum(held["pages"] for held in waiting["holders"])
        assert held + waiting["available"] == 32
        assert f"it needs {needed}" in waiting["text"]
        assert "large (#" in waiting["text"]
        low, high = explained["eta_ms"]
        assert 0 < low <= high
        ends = explain(client, "large")["eta_ms"]
        assert ends[0] <= ends[1]
    daemon.stop()
