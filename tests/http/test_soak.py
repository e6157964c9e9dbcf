"""Twenty minutes of everything that clients do: memory stays as it is, and nothing is left behind.

``SOAK_S=60`` makes it a minute.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.http.edges import Served
from tests.http.load import HttpClient, WireClient, descriptors, resident
from tests.real_daemon import daemon, quiet, wire
from tests.server.harness import until
from tests.tiny.models import build

SECONDS = float(os.environ.get("SOAK_S", "1200"))
WARM_S = min(60.0, SECONDS / 3)  # until then memory may grow
WINDOW_S = min(30.0, SECONDS / 6)  # over which it is averaged
WORKERS = 12
GROWTH = 0.02
FLAGS = (
    "--page-size=8",
    "--num-pages=140",
    "--num-host-pages=80",
    "--max-num-seqs=8",
    "--max-queue=40",
    "--http=127.0.0.1:0",
)
Act = Callable[["Visitor"], Awaitable[str]]


class Visitor:
    """One of those who come and go: does one thing after the other, by chance."""

    def __init__(self, served: Served, seed: int) -> None:
        self.served = served
        self.dice = random.Random(seed)

    def prompt(self) -> str:
        """Some begin alike."""
        words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "17"]
        begin = "You are asked again. " if self.dice.random() < 0.5 else ""
        return begin + " ".join(self.dice.choices(words, k=self.dice.randint(1, 40)))

    def params(self) -> dict[str, Any]:
        """Ways to sample."""
        dice = self.dice
        params: dict[str, Any] = {"max_tokens": dice.randint(1, 60)}
        if dice.random() < 0.3:
            params["stop"] = ["e"]
        if dice.random() < 0.3:
            params["n"] = 2
        if dice.random() < 0.2:
            params["logprobs"] = 2
        return params | {"temperature": dice.choice([0, 1])}

    async def live(self, until: float, told: Counter[str]) -> None:
        """Until the time is up; counts what was done, and how it ended."""
        while time.monotonic() < until:
            act = self.dice.choice(ACTS)
            told[f"{act.__name__}: {await act(self)}"] += 1


async def wire_stream(visitor: Visitor) -> str:
    client = WireClient(visitor.served)
    await client.open()
    for _ in range(visitor.dice.randint(1, 3)):
        await client.send(visitor.prompt(), **visitor.params())
        reply = await client.reply()
    await client.close()
    return str(reply.code or reply.reason)


async def wire_plain(visitor: Visitor) -> str:
    client = WireClient(visitor.served)
    await client.open()
    frame = {"prompt": visitor.prompt(), "params": visitor.params(), "stream": False}
    await client.send_frame(type="generate", id="r", priority=visitor.dice.randint(-1, 2), **frame)
    reply = await client.reply()
    await client.close()
    return str(reply.code or reply.reason)


async def wire_cancel(visitor: Visitor) -> str:
    client = WireClient(visitor.served)
    await client.open()
    await client.send(visitor.prompt(), max_tokens=100, ignore_eos=True)
    if visitor.dice.random() < 0.5:
        await client.reply(pieces=1)
    await client.send_frame(type="cancel", id="r")
    reply = await client.reply()
    await client.close()
    return str(reply.code or reply.reason)


async def wire_drop(visitor: Visitor) -> str:
    client = WireClient(visitor.served)
    await client.open()
    await client.send(visitor.prompt(), max_tokens=100, ignore_eos=True)
    await client.reply(pieces=visitor.dice.randint(0, 3))
    client.drop()
    return "left"


async def wire_watch(visitor: Visitor) -> str:
    client = WireClient(visitor.served)
    await client.open()
    await client.send_frame(type="subscribe", topic="state", hz=30)
    await client.send_frame(type="subscribe", topic="events")
    await client.send(visitor.prompt(), max_tokens=20)
    reply = await client.reply()
    await client.send_frame(type="unsubscribe", topic="events")
    await client.close()
    return str(reply.code or reply.reason)


async def wire_bad(visitor: Visitor) -> str:
    client = WireClient(visitor.served)
    await client.open()
    await client.send_frame(
        **visitor.dice.choice(
            [
                {"type": "generate", "id": "r", "prompt": "a", "params": {"n": 0}},
                {"type": "generate", "id": "r", "prompt": "a " * 5000},
                {"type": "nothing"},
                {"type": "cancel", "id": "x"},
                {"type": "explain", "id": "x"},
            ]
        )
    )
    reply = await client.reply()
    await client.close()
    return str(reply.code)


async def http_stream(visitor: Visitor) -> str:
    client = HttpClient(visitor.served)
    await client.open()
    for _ in range(visitor.dice.randint(1, 3)):
        await client.send(visitor.prompt(), **visitor.params())
        reply = await client.reply()
    await client.close()
    return str(reply.code or reply.reason)


async def http_plain(visitor: Visitor) -> str:
    client = HttpClient(visitor.served)
    await client.open()
    await client.send(visitor.prompt(), stream=False, **visitor.params())
    reply = await client.reply()
    await client.close()
    return str(reply.code or reply.reason)


async def http_schema(visitor: Visitor) -> str:
    client = HttpClient(visitor.served)
    await client.open()
    words = visitor.dice.sample(["yes", "no", "maybe", "never"], 2)
    await client.send(visitor.prompt(), stream=False, guided_choice=words, max_tokens=20)
    reply = await client.reply()
    await client.close()
    assert reply.code or reply.text in words, reply
    return str(reply.code or reply.reason)


async def http_drop(visitor: Visitor) -> str:
    client = HttpClient(visitor.served)
    await client.open()
    stream = visitor.dice.random() < 0.5
    await client.send(visitor.prompt(), stream=stream, max_tokens=100, ignore_eos=True)
    if stream:
        await client.reply(pieces=visitor.dice.randint(1, 3))
    client.drop()
    return "left"


async def http_bad(visitor: Visitor) -> str:
    client = HttpClient(visitor.served)
    await client.open()
    path, body = visitor.dice.choice(
        [
            ("/v1/completions", b"{"),
            ("/v1/completions", {"prompt": "a", "nothing": 1}),
            ("/v1/completions", {"prompt": "a " * 5000}),
            ("/v1/chat/completions", {"messages": []}),
            ("/nowhere", {}),
            ("/metrics", {}),
        ]
    )
    status, _ = await client.ask("POST", path, body)
    await client.close()
    return str(status)


async def http_look(visitor: Visitor) -> str:
    client = HttpClient(visitor.served)
    await client.open()
    statuses = [
        (await client.ask("GET", path))[0] for path in ("/metrics", "/health", "/v1/models")
    ]
    await client.close()
    return str(statuses)


ACTS: tuple[Act, ...] = (
    *(wire_stream, wire_plain, wire_cancel, wire_drop, wire_watch, wire_bad),
    *(http_stream, http_plain, http_schema, http_drop, http_bad, http_look),
)


async def measure(pids: dict[str, int], until: float) -> list[tuple[float, dict[str, int]]]:
    """Memory of the processes, every second: seconds since the start, bytes."""
    began = time.monotonic()
    samples = []
    while (now := time.monotonic()) < until:
        samples.append((now - began, {name: resident(pid) for name, pid in pids.items()}))
        await asyncio.sleep(1)
    return samples


async def soak(served: Served, pids: dict[str, int]) -> Any:
    """What came of it, and the memory meanwhile."""
    end = time.monotonic() + SECONDS
    told = Counter[str]()
    visitors = [Visitor(served, seed) for seed in range(WORKERS)]
    *_, samples = await asyncio.gather(
        *(each.live(end, told) for each in visitors), measure(pids, end)
    )
    return told, samples


def growth(samples: list[tuple[float, dict[str, int]]], name: str) -> float:
    """From the window after the first minute to the last one, as a share."""
    early = [each[name] for at, each in samples if WARM_S <= at < WARM_S + WINDOW_S]
    late = [each[name] for at, each in samples if at >= SECONDS - WINDOW_S]
    first, last = sum(early) / len(early), sum(late) / len(late)
    curve = [f"{each[name] / 1e6:.1f}" for _, each in samples[:: max(1, len(samples) // 20)]]
    print(f"{name}: {first / 1e6:.1f} MB after {WARM_S:.0f} s, {last / 1e6:.1f} MB at the end")
    print("  ", *curve)
    return last / first - 1


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_memory_stays_as_it_is(folders: Callable[[], Path]) -> None:
    home = folders()
    model = str(build("llama", home / "tiny"))
    with daemon(home, model, *FLAGS) as socket, wire(socket) as client:
        served, status = Served.at(socket), quiet(client)
        pids = {"daemon": status["pid"], "engine": status["engine_pid"]}
        files = {name: descriptors(pid) for name, pid in pids.items()}
        told, samples = asyncio.run(soak(served, pids))
        for line, count in sorted(told.items()):
            print(f"{count:7} {line}")
        grown = {name: growth(samples, name) for name in pids}
        assert max(grown.values()) < GROWTH, grown
        status = quiet(client)
        assert status["engine_pid"] == pids["engine"], "the engine died"
        assert status["preemptions"]["swap"] + status["preemptions"]["recompute"] > 0
        for name, pid in pids.items():
            until(lambda pid=pid, name=name: descriptors(pid) <= files[name], f"{name}'s files")
