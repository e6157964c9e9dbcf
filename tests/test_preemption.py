"""Preemption in the real daemon: who gives way, who comes first, and that no answer shows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.real_daemon import Stream, ask, quiet, wire
from tests.server.harness import PATIENCE_S, ROOT, Frame
from tests.tiny_daemons import (
    CACHE_OFF,
    PAGE_SIZE,
    SLOTS,
    Start,
    check_ledgers,
    check_same,
    chunked,
    expected,
    request,
    squeeze,
    start,
    tight,
    tokens,
    victims,
)

__all__ = ["start"]  # a fixture


@pytest.mark.parametrize(
    ("mode", "flags"),
    [
        ("swap", ()),
        ("recompute", (CACHE_OFF,)),
        pytest.param("auto", (), marks=pytest.mark.slow),
        pytest.param("swap", (CACHE_OFF,), marks=pytest.mark.slow),
        pytest.param("recompute", (), marks=pytest.mark.slow),
    ],
)
def test_a_stream_that_gave_way_is_the_same_stream(
    start: Start, mode: str, flags: tuple[str, ...]
) -> None:
    """B13: in every way of sampling, preempted at least twice.

    How often a round does that depends on who is quicker, the daemon or this client.
    """
    low = victims(200)
    references = expected(start, low)
    preemptions: Counter[str] = Counter()
    with wire(tight(start, mode, *flags)) as client:
        for _ in range(8):
            before, began = client.status(), time.monotonic()
            streams = squeeze(client, low)
            took_ms = 1e3 * (time.monotonic() - began)
            check_same(streams, references)
            check_ledgers(streams, before, quiet(client), mode)
            for id in low:
                preemptions[id] += streams[id].preemptions
                assert 0 < streams[id].life_ms < took_ms
                waited = streams[id].done["ledger"]["preempted_ms"]
                assert (waited > 0) == (streams[id].preemptions > 0)
            if min(preemptions[id] for id in low) >= 2:
                return
    raise AssertionError(f"some were hardly preempted: {preemptions}")


def test_the_urgent_one_has_its_first_token_before_any_other_ends(start: Start) -> None:
    """B15: when slots and pages are both short."""
    low = {f"low-{which}": request(f"slow job {which}", 300, 1) for which in range(SLOTS)}
    high = {"high": request("urgent! " * 12, 6, priority=-1)}
    with wire(tight(start)) as client:
        for id, fields in low.items():
            client.send(type="generate", id=id, **fields)
        frames: list[Frame] = []
        while {frame["id"] for frame in frames if frame["type"] == "delta"} != set(low):
            frames.append(client.receive())
        client.send(type="generate", id="high", **high["high"])
        while sum(frame["type"] == "done" for frame in frames) <= len(low):
            frames.append(client.receive())
        quiet(client)
    order = [frame["id"] for frame in frames if frame["type"] == "done"]
    first = next(at for at, frame in enumerate(frames) if is_delta(frame, "high"))
    assert not any(frame["type"] == "done" for frame in frames[:first])
    assert order[0] == "high"
    streams = {id: Stream(f for f in frames if f["id"] == id) for id in order}
    assert streams["high"].preemptions == 0
    check_same(streams, expected(start, low | high))


def is_delta(frame: Frame, id: str) -> bool:
    return frame["type"] == "delta" and frame["id"] == id


def test_half_prefilled_requests_do_not_wait_for_each_other(start: Start) -> None:
    """B10: two prompts of two thirds of the pool each; six that grow to more than half of it."""
    two = {f"two-{which}": request(tokens(340, which), 4) for which in range(2)}
    six = {f"six-{which}": request(tokens(8, which), 280) for which in range(6)}
    with wire(chunked(start)) as client:
        for requests in (two, six):
            before = sum(client.status()["preemptions"].values())
            streams = ask(client, requests)
            check_same(streams, expected(start, requests))
            preemptions = sum(quiet(client)["preemptions"].values()) - before
            assert preemptions < 10 * len(requests)
        assert preemptions > 0


def test_a_long_prompt_does_not_stop_streams(start: Start) -> None:
    """B15: with 16 tokens a step, three streams go on while a prompt of 300 is computed."""
    requests = {f"stream-{which}": request(tokens(3, which), 60) for which in range(3)}
    requests["long"] = request(tokens(300, 9), 1)
    with wire(chunked(start)) as client:
        for id, fields in requests.items():
            client.send(type="generate", id=id, **fields)
        client.until("started", id="long")
        meanwhile = Counter[str]()
        while not is_delta(frame := client.until("delta"), "long"):
            meanwhile[frame["id"]] += len(frame["tokens"])
        quiet(client)
    assert len(meanwhile) == 3
    assert min(meanwhile.values()) >= 10


def test_who_waits_long_enough_has_its_turn(start: Start) -> None:
    """B15: one that is less urgent than all others, before and after it.

    What came before it has waited longer and stays before it. Of what comes once it has gained
    three levels none is, however much that is. The others are as many as run for longer than
    gaining takes, on any machine; they are cancelled when enough has been seen.
    """
    early = {f"early-{which}": request(tokens(8, which), 70) for which in range(200)}
    late = {f"late-{which}": request(tokens(8, which), 6) for which in range(12)}
    low = {"low": request(tokens(8, 300), 20, priority=3)}
    with wire(chunked(start)) as client:
        client.send(type="subscribe", topic="events")
        for id, fields in (early | low).items():
            client.send(type="generate", id=id, **fields)
        gained = 3
        while gained > 0:
            frame = client.until("started", "event")
            assert (frame["type"], frame.get("id")) != ("started", "low"), "it did not wait"
            if frame.get("request") == "low" and frame["kind"] == "reprioritized":
                assert (frame["before"], frame["aged"]) == (gained, True)
                gained = frame["priority"]
        client.send(type="unsubscribe", topic="events")
        for id, fields in late.items():
            client.send(type="generate", id=id, **fields)
        for id in early:
            client.send(type="cancel", id=id)
        order, ended = [], set[str]()
        while not ended >= set(late | low):
            frame = client.until("started", "done")
            if frame["type"] == "done":
                ended.add(frame["id"])
            elif frame["id"] not in early:
                order.append(frame["id"])
        assert sorted(order) == sorted(late | low)
        assert order[0] == "low"
        quiet(client)


def scarce(start: Start) -> str:
    """A daemon with very few pages, and swap space for one victim."""
    sizes = ("--num-pages=24", f"--max-num-seqs={SLOTS}", "--num-host-pages=9")
    return start(*sizes, "--preemption-mode=swap")


def test_swap_space_that_runs_out_is_no_error(start: Start) -> None:
    """B11: four that grow, one of them with two choices."""
    requests = {f"r{which}": request(tokens(6, which), 100) for which in range(3)}
    requests["two"] = request(tokens(6, 3), 100, temperature=1, seed=5, n=2)
    with wire(scarce(start)) as client:
        streams = ask(client, requests)
        status = quiet(client)
    check_same(streams, expected(start, requests))
    assert min(status["preemptions"].values()) > 0


def test_pages_that_are_given_away_while_they_are_copied(start: Start) -> None:
    """B12: a page that was mixed up would show, at the latest when it is found again."""
    requests = {f"r{which}": request(tokens(9, which), 60, logprobs=0) for which in range(8)}
    again = {f"again-{id}": fields for id, fields in requests.items()}
    references = expected(start, requests)
    with wire(scarce(start)) as client:
        for _ in range(20):
            streams = ask(client, requests)
            check_same(streams, references)
            assert sum(stream.preemptions for stream in streams.values()) > 0
        for id, fields in again.items():
            [stream] = ask(client, {id: fields}).values()
            stream.check_same(references[id.removeprefix("again-")])
            assert stream.cached_tokens in (0, PAGE_SIZE)
        quiet(client)


# Imports once and makes a client process for each line it reads: how many preemptions it waits for.
CLIENTS = """
import json, os, signal, sys
from websockets.sync.client import unix_connect
path, frames = sys.argv[1], json.loads(sys.argv[2])
for line in sys.stdin:
    client = os.fork()
    if client:
        os.waitpid(client, 0)
        continue
    with unix_connect(path, uri="ws://localhost/", compression=None) as socket:
        for frame in frames:
            socket.send(json.dumps(frame))
        for _ in range(int(line)):
            while json.loads(socket.recv())["type"] != "preempted":
                pass
        print(os.getpid(), flush=True)
        signal.pause()
"""


def test_clients_killed_in_the_middle_of_swaps_leave_both_pools_whole(start: Start) -> None:
    lost = {f"lost-{which}": request(tokens(20, which), 300) for which in range(SLOTS)}
    kept = {"kept": request("and on it goes", 400, temperature=1, seed=3, logprobs=1)}
    url = tight(start)
    frames = [{"type": "generate", "id": id, **fields} for id, fields in lost.items()]
    command = [sys.executable, "-c", CLIENTS, url.removeprefix("unix:"), json.dumps(frames)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with wire(url) as client, subprocess.Popen(command, **pipes) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        before = quiet(client)
        for turn in range(20):
            if turn % 5 == 0:  # somebody else is there all the time
                client.send(type="generate", id=f"kept-{turn}", **kept["kept"])
            clients.stdin.write(f"{1 + turn % 3}\n")
            clients.stdin.flush()
            os.kill(int(clients.stdout.readline()), signal.SIGKILL)
        clients.stdin.close()
        clients.wait(PATIENCE_S)
        after = quiet(client)
        assert after["requests"]["cancelled_total"] - before["requests"]["cancelled_total"] >= 100
        assert after["preemptions"]["swap"] - before["preemptions"]["swap"] >= 20
        streams = ask(client, kept | lost)
        quiet(client)
    check_same(streams, expected(start, kept | lost))


def test_a_long_beginning_survives_a_full_pool_in_host_memory(start: Start) -> None:
    """Four times as many pages as there are come between two requests that begin alike."""
    system = tokens(160, 50)
    first, again = request([*system, 1, 2], 8), request([*system, 3, 4], 8)
    others = {f"other-{which}": request(tokens(100, which), 30) for which in range(16)}
    with wire(tight(start)) as client:
        ask(client, {"first": first})
        ask(client, others)
        before = quiet(client)
        assert before["host_pages"]["cached"] > 0
        streams = ask(client, {"again": again})
        after = quiet(client)
    assert streams["again"].cached_tokens == len(system)
    assert after["host_hits"] - before["host_hits"] > len(system) // 2
    check_same(streams, expected(start, {"again": again}))
