"""Clients that go, or stop reading: nothing is computed for them, and nobody waits for them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from tests.engine.fake_engine import SLOW
from tests.server.harness import PATIENCE_S, ROOT, Client, Daemon, until

Start = Callable[..., Daemon]

# A client process that asks and then only says that it got a first frame of the wanted kind.
CLIENT = """
import json, sys
from websockets.sync.client import unix_connect
path, frames, wanted = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
with unix_connect(path, uri="ws://localhost/", compression=None) as socket:
    for frame in frames:
        socket.send(json.dumps(frame))
    while json.loads(socket.recv())["type"] != wanted:
        pass
    print("now", flush=True)
    socket.socket.settimeout(None)
    sys.stdin.read()
"""


def start_client(daemon: Daemon, frames: list[dict[str, object]], wanted: str) -> subprocess.Popen:
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, daemon.settings.socket, json.dumps(frames), wanted],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "now\n"
    return client


def kill(client: subprocess.Popen) -> None:
    client.kill()
    client.communicate(timeout=PATIENCE_S)


def generate(id: str, **fields: object) -> dict[str, object]:
    return {"type": "generate", "id": id, "prompt": "abc", "params": {"max_tokens": 250}, **fields}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wanted", ["accepted", "started", "delta"])
def test_a_killed_client_leaves_nothing(start: Start, wanted: str, stream: bool) -> None:
    daemon = start(engine={"step_s": 0.02, "max_num_seqs": 2})
    wanted = wanted if stream else wanted.replace("delta", "started")
    client = start_client(daemon, [generate(f"r{at}", stream=stream) for at in range(4)], wanted)
    kill(client)
    status = daemon.until_quiet()
    assert status["requests"]["cancelled_total"] == 4
    assert status["requests"]["finished_total"] == 0
    assert status["tokens"]["generated"] < 2 * 250
    with daemon.client() as again:
        frames = again.generate("r0", prompt="xyz", params={"max_tokens": 3})
        assert "".join(f["text"] for f in frames if f["type"] == "delta") == "xyz"
    daemon.stop()


def test_a_waiting_request_of_a_lost_client_is_never_scheduled(start: Start) -> None:
    daemon = start(engine={"step_s": 0.02, "max_num_seqs": 1})
    with daemon.client() as busy:
        busy.send(**generate("busy"))
        busy.until("delta")
        prompts = busy.status()["tokens"]["prompt"]
        with daemon.client() as lost:
            lost.send(**generate("waits"))
            lost.until("accepted")
            lost.drop()
        until(lambda: busy.status()["requests"]["waiting"] == 0, "the waiting one to be gone")
        busy.send(type="cancel", id="busy")
        assert busy.generate("next", prompt="abc", params={"max_tokens": 2})[-1]["type"] == "done"
        assert busy.status()["tokens"]["prompt"] == prompts + len("abc")
    daemon.stop()


def test_half_closed_and_dropped_connections_in_a_row(daemon: Daemon) -> None:
    for round in range(60):
        with daemon.client() as client:
            slow = {"max_tokens": 250, "seed": SLOW}
            client.send(**generate("same-id", params=slow, stream=round % 2 == 0))
            client.until("started")
            client.socket.socket.shutdown(socket.SHUT_RDWR if round % 3 else socket.SHUT_WR)
    status = daemon.until_quiet()
    assert status["requests"]["cancelled_total"] == 60
    until(lambda: daemon.status()["connections"] == 1, "the sessions to end")


def test_what_tokenises_holds_up_no_end(start: Start) -> None:
    """The worker thread goes on for a while; the session, its requests and names do not."""
    daemon = start(engine={"step_s": 0.01})
    with daemon.client() as normal:
        with daemon.client() as lost:
            lost.send(**generate("runs"))
            lost.until("delta")
            lost.send(type="generate", id="huge", prompt="x " * 1_000_000)
            lost.send(type="explain", id="huge")
            huge = lost.until("explanation")["reasons"][0]["handle"]
            lost.drop()
        until(
            lambda: (now := normal.status())["requests"]["cancelled_total"] == 1 and now,
            "what ran to be cancelled",
        )
        assert normal.status()["connections"] == 2, "the thread had ended: the test is no test"
        for type in ("explain", "cancel"):
            normal.send(type=type, id=f"#{huge}")
            assert normal.until("error")["code"] == "request_not_found"
        frames = normal.generate("n", prompt_tokens=[65], params={"max_tokens": 2})
        assert frames[-1]["type"] == "done"
    daemon.until_quiet()
    assert daemon.stop()[0] == 0


def flood(id: str) -> dict[str, object]:
    return generate(id, params={"max_tokens": 1900, "logprobs": 20, "ignore_eos": True})


def test_a_slow_reader_loses_its_requests_and_nobody_waits(start: Start) -> None:
    daemon = start(
        engine={"step_s": 0.0005, "max_model_len": 2048, "num_pages": 1024},
        outbox_bytes=200_000,
    )
    process = psutil.Process(daemon.process.pid)
    with daemon.client() as normal, daemon.client(max_queue=1) as silent:
        before = process.memory_info().rss
        silent.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for at in range(4):
            silent.send(**flood(f"s{at}"))
        until(
            lambda: (s := normal.status()["requests"])["cancelled_total"] == 4 and not s["running"],
            "the slow client's requests to be cancelled",
        )
        frames = normal.generate("n", prompt="abc", params={"max_tokens": 50})
        assert frames[-1]["type"] == "done"
        assert process.memory_info().rss - before < 32 * 1024 * 1024
        for_each: dict[str, list[str]] = {f"s{at}": [] for at in range(4)}
        while not all(for_each.values()):
            frame = silent.until("done", "error")
            for_each[frame["id"]].append(frame.get("code", "done"))
        assert for_each == {id: ["slow_consumer"] for id in for_each}
        again = silent.generate("s0", prompt="abc", params={"max_tokens": 2})
        assert again[-1]["type"] == "done", "the connection is as good as before"
    daemon.until_quiet()
    daemon.stop()


def test_a_client_that_lags_gets_merged_deltas_without_gaps(start: Start) -> None:
    daemon = start(engine={"step_s": 0.0002, "max_model_len": 4096, "num_pages": 1024})
    with daemon.client(max_queue=1) as client:
        client.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send(**generate("b", params={"max_tokens": 4000, "logprobs": 5}))
        with daemon.client() as normal:
            client.until("delta")
            until(lambda: normal.status()["requests"]["running"] == 0, "the engine to be done")
        frames = client.rest("b")
    deltas = [frame for frame in frames if frame["type"] == "delta"]
    assert [frame["seq"] for frame in deltas] == list(range(2, len(deltas) + 2))
    assert len(deltas) < 3999, "nothing was merged: the test is no test"
    assert sum(len(frame["tokens"]) for frame in deltas) == 3999
    assert all(len(frame["logprobs"]) == len(frame["tokens"]) for frame in deltas)
    assert ("abc" * 1500)[1:4000] == "".join(frame["text"] for frame in deltas)
    assert frames[-1]["choices"] == [{"index": 0, "finish_reason": "length"}]
    daemon.stop()


def ask_often(client: Client) -> None:
    """Ask a thousand times and read no answer."""
    for _ in range(1000):
        client.send(type="status")


def test_who_never_reads_answers_is_cut_off(start: Start) -> None:
    daemon = start(outbox_bytes=100_000)
    with daemon.client(max_queue=1) as silent, daemon.client() as normal:
        with pytest.raises(ConnectionClosed):
            until(lambda: ask_often(silent), "the connection to be closed")
        until(lambda: normal.status()["connections"] == 1, "the silent client to be gone")
    daemon.stop()


def test_tokenising_a_huge_prompt_blocks_nobody(start: Start) -> None:
    daemon = start(engine={"step_s": 0.001})
    with daemon.client() as big, daemon.client() as normal:
        big.send(type="generate", id="big", prompt="é" * 2_000_000)
        frames = normal.generate("n", prompt="abc", params={"max_tokens": 3})
        assert frames[-1]["type"] == "done"
        assert normal.status()["requests"]["finished_total"] == 1
        normal.send(type="cancel", id="big")
        assert normal.receive()["code"] == "request_not_found"
        error = big.rest("big")[-1]
        assert error["code"] == "prompt_too_long"
    daemon.stop()
