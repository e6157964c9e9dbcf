"""A real model's engine is killed under load: what had not begun gives its own text anyway."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from tests.real_daemon import Stream, ask, choices, daemon, quiet, wire
from tests.server.harness import Client, Frame, alive, until
from tests.server.test_kills import seed
from tests.tiny.models import build

__all__ = ["seed"]

SIZES = ("--page-size=8", "--num-pages=64", "--max-num-seqs=4", "--num-host-pages=200")


@contextmanager
def tiny() -> Iterator[str]:
    """A daemon with a tiny model and too few pages; its address."""
    with tempfile.TemporaryDirectory(prefix="pagedd-") as base:
        folder = Path(base)
        model = str(build("llama", folder / "tiny"))
        home = folder / "h"
        home.mkdir()
        with daemon(home, model, *SIZES, "--preemption-mode=auto") as url:
            yield url


def requests(random: Random, count: int) -> dict[str, dict[str, Any]]:
    """Greedy and seeded ones, long and short, streamed and not."""
    found: dict[str, dict[str, Any]] = {}
    for at in range(count):
        params: dict[str, Any] = {"max_tokens": random.randint(5, 40), "ignore_eos": True}
        params |= {"temperature": 0} if at % 2 else {"temperature": 1, "seed": at}
        if random.random() < 0.3:
            params["n"] = 2
        found[f"r{at}"] = {
            "prompt_tokens": [random.randrange(250) for _ in range(random.randint(2, 60))],
            "params": params,
            "priority": random.randint(0, 1),
        }
    return found


def survivors(client: Client, wanted: dict[str, dict[str, Any]], frames: int) -> dict[str, Stream]:
    """Send all, kill the engine after so many frames; those that ended well."""
    engine = client.status()["engine_pid"]
    for id, fields in wanted.items():
        client.send(type="generate", id=id, **fields)
    got: dict[str, list[Frame]] = {id: [] for id in wanted}
    open, taken = set(wanted), 0
    while open:
        frame = client.receive()
        taken += 1
        if taken == frames:
            os.kill(engine, signal.SIGKILL)
        if frame.get("id") in got:
            got[frame["id"]].append(frame)
            if frame["type"] in ("done", "error"):
                open.remove(frame["id"])
    for id, each in got.items():
        if each[-1]["type"] == "error":
            assert each[-1]["code"] == "engine_failed"
            assert any(frame["type"] == "delta" for frame in each), f"{id} had not begun"
    ended = {id: each for id, each in got.items() if each[-1]["type"] == "done"}
    return {id: Stream(each, choices(wanted[id])) for id, each in ended.items()}


def play(seed: int, rounds: int) -> None:
    random = Random(seed)
    with tiny() as url, wire(url) as client:
        pids = {client.status()["engine_pid"]}
        spared = 0
        for at in range(rounds):
            wanted = requests(random, 12)
            references = ask(client, wanted)
            frames = random.randint(1, 60)
            print(f"round {at}: after {frames} frames")
            streams = survivors(client, wanted, frames)
            for id, stream in streams.items():
                stream.check_same(references[id])
            spared += len(streams)
            until(lambda: client.status()["state"] == "ready", "the state ready")
            status = quiet(client)
            pids.add(status["engine_pid"])
        assert spared, "no request waited when its engine died"
        children = psutil.Process(client.status()["pid"]).children(recursive=True)
        assert len([child for child in children if child.pid in pids]) == 1
    until(lambda: not [pid for pid in pids if alive(pid)], "the end of all engines")


def test_a_tiny_model_s_engine_dies_and_nobody_in_the_queue_notices(seed: int) -> None:
    play(seed, 1)


@pytest.mark.slow
def test_many_rounds_with_a_tiny_model(seed: int) -> None:
    play(seed, 12)
