"""Daemons with the tiny model and too few pages, and requests that make each other give way."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.real_daemon import Stream, ask, choices, daemon, wire
from tests.server.harness import Client, Frame
from tests.tiny.models import build
from tests.tiny.tokenizer import EOS

PAGE_SIZE = 8
NUM_PAGES = 64  # of the tight daemons
SLOTS = 8
CACHE_OFF = "--no-prefix-cache"
Requests = dict[str, dict[str, Any]]
Start = Callable[..., str]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Start a daemon with the tiny model; its address. The same flags give the same daemon."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagedd-")))
        model = str(build("llama", folder / "tiny"))
        running: dict[tuple[str, ...], str] = {}

        def start(*flags: str) -> str:
            if flags not in running:
                home = folder / str(len(running))
                home.mkdir()
                size = f"--page-size={PAGE_SIZE}"
                running[flags] = stack.enter_context(daemon(home, model, size, *flags))
            return running[flags]

        yield start


def roomy(start: Start) -> str:
    """A daemon in which nobody ever gives way."""
    return start("--num-pages=900", "--max-num-seqs=16", CACHE_OFF)


def tight(start: Start, mode: str = "swap", *flags: str) -> str:
    """A daemon with too few pages, and plenty of swap space."""
    sizes = (f"--num-pages={NUM_PAGES}", f"--max-num-seqs={SLOTS}", "--num-host-pages=500")
    return start(*sizes, f"--preemption-mode={mode}", *flags)


def chunked(start: Start) -> str:
    """A daemon with too few pages and small steps, in which waiting makes more urgent."""
    steps = ("--max-num-batched-tokens=16", "--max-num-seqs=6", "--priority-aging=0.1")
    return start(f"--num-pages={NUM_PAGES}", *steps)


def expected(start: Start, requests: Requests) -> dict[str, Stream]:
    """What the requests give where there is room for all."""
    with wire(roomy(start)) as client:
        streams = ask(client, requests)
        assert not sum(client.status()["preemptions"].values())
    return streams


def check_same(streams: dict[str, Stream], references: dict[str, Stream]) -> None:
    for id, reference in references.items():
        streams[id].check_same(reference)


def request(
    prompt: str | list[int], max_tokens: int, priority: int = 0, **params: Any
) -> dict[str, Any]:
    """A greedy request that does not end before ``max_tokens``, unless told otherwise."""
    params = {"max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, **params}
    key = "prompt" if isinstance(prompt, str) else "prompt_tokens"
    return {key: prompt, "priority": priority, "params": params}


def tokens(count: int, family: int) -> list[int]:
    """A prompt of so many tokens; those of two families differ from the first on."""
    return [(family * 37 + at * 11) % 250 for at in range(count)]


def victims(num_tokens: int) -> Requests:
    """Less urgent requests that sample in every way; together they want all slots."""
    ways: dict[str, dict[str, Any]] = {
        "greedy": {},
        "seeded": {"temperature": 1, "seed": 7},
        "penalties": {"frequency_penalty": 0.6, "repetition_penalty": 1.2},
        "presence": {"temperature": 0.8, "seed": 8, "presence_penalty": 0.9, "logprobs": 0},
        # ends as soon as it may
        "min-tokens": {"ignore_eos": False, "min_tokens": num_tokens - 20, "logit_bias": {EOS: 99}},
        "logprobs": {"temperature": 1, "seed": 9, "logprobs": 2},
        "two": {"temperature": 1, "seed": 10, "n": 2},
    }
    return {
        name: request(f"the story of {name} begins", num_tokens, 1, **params)
        for name, params in ways.items()
    }


def squeeze(client: Client, low: Requests) -> dict[str, Stream]:
    """Serve ``low`` while bursts of urgent requests take all slots again and again; all streams."""
    for id, fields in low.items():
        client.send(type="generate", id=id, **fields)
    frames: dict[str, list[Frame]] = defaultdict(list)
    open, urgent, heard = set(low), set[str](), set[str]()
    bursts = 0
    while open or urgent:
        frame = client.receive()
        id = frame["id"]
        frames[id].append(frame)
        if frame["type"] in ("done", "error"):
            open.discard(id)
            urgent.discard(id)
        elif frame["type"] == "delta":
            heard.add(id)
        if open and not urgent and heard >= open and bursts < 8:
            urgent = {f"urgent-{bursts}-{which}" for which in range(SLOTS)}
            for id in urgent:
                client.send(type="generate", id=id, **request(id, 5))
            bursts += 1
            heard = set()
    return {id: Stream(got, choices(low.get(id, {}))) for id, got in frames.items()}


def check_ledgers(streams: dict[str, Stream], before: Frame, after: Frame, mode: str) -> None:
    """What the ledgers say adds up to what the status counts, and fits the mode."""
    ledgers = [stream.done["ledger"] for stream in streams.values()]
    grown = {key: after[key] - before[key] for key in ("recomputed_tokens", "swapped_bytes")}
    assert grown == {key: sum(ledger[key] for ledger in ledgers) for key in grown}
    counts = {
        way: after["preemptions"][way] - before["preemptions"][way] for way in before["preemptions"]
    }
    modes = [mark["mode"] for stream in streams.values() for mark in stream.marks("preempted")]
    assert counts == {way: modes.count(way) for way in counts}
    assert sum(counts.values()) == sum(ledger["preemptions"] for ledger in ledgers)
    if mode == "swap":
        assert counts["recompute"] == grown["recomputed_tokens"] == 0 < grown["swapped_bytes"]
    if mode == "recompute":
        assert counts["swap"] == grown["swapped_bytes"] == 0 < grown["recomputed_tokens"]
