"""The daemon with a real model under load, as its users meet it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from pagedd.client import Client
from pagedd.errors import ModelNotFound
from pagedd.models.catalog import DEFAULT_MODEL
from pagedd.models.resolve import resolve
from pagedd.protocol import Delta, Done, Generate, Params, Preempted, Status
from tests.real_daemon import daemon
from tests.tiny.models import build

PATIENCE_S = 60.0
STRANGERS = 15


@pytest.fixture
def tiny(home: Path) -> str:
    return str(build("llama", home / "tiny"))


async def ask(client: Client, frame: Generate) -> tuple[list[str], Done, int]:
    """The joined text of each choice, the end, and how often it was preempted."""
    texts = [""] * frame.params.n
    preemptions = 0
    async for got in client.generate(frame):
        match got:
            case Delta():
                texts[got.index] += got.text
            case Preempted():
                preemptions += 1
            case Done():
                return texts, got, preemptions
    raise AssertionError("the stream ended without an end")


async def quiet(client: Client) -> Status:
    """Wait until nothing runs or waits."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            status = await client.status()
            if status.requests.running == status.requests.waiting == 0:
                return status
            await anyio.sleep(0.02)


def frame(name: str, prompt: str, **params: object) -> Generate:
    return Generate(id=name, prompt=prompt, params=Params(**params))


async def together(calls: list[Callable[[], Awaitable[None]]]) -> None:
    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(call)


def test_sixty_four_streams_and_eight_of_four(home: Path, tiny: str) -> None:
    async def main(url: str) -> None:
        async with Client.connect(url) as one, Client.connect(url) as other:
            ends: dict[str, Done] = {}

            def asking(client: Client, name: str, n: int) -> Callable[[], Awaitable[None]]:
                async def call() -> None:
                    sent = frame(name, f"number {name} of many", n=n, seed=len(ends), max_tokens=40)
                    texts, ends[name], _ = await ask(client, sent)
                    assert len(texts) == n

                return call

            calls = [asking(one, f"a{i}", 1) for i in range(64)]
            calls += [asking(other, f"b{i}", 4) for i in range(8)]
            await together(calls)
            assert len(ends) == 72
            assert {len(end.choices) for end in ends.values()} == {1, 4}
            pages = (await quiet(one)).pages
            assert pages.free + pages.cached == pages.total

    with daemon(home, tiny, "--num-pages=200", "--page-size=8", "--max-num-seqs=16") as url:
        anyio.run(main, url)


CLIENT = """
import sys, anyio
from pagedd.client import Client
from pagedd.protocol import Generate, Params

async def ask(client, at, wanted):
    params = Params(max_tokens=400, ignore_eos=True)
    async for got in client.generate(Generate(id=f"x{at}", prompt="on and on", params=params)):
        if type(got).__name__ == wanted:
            print("now", flush=True)

async def main(url, wanted, count):
    async with Client.connect(url) as client, anyio.create_task_group() as tasks:
        for at in range(count):
            tasks.start_soon(ask, client, at, wanted)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


async def kill_clients(url: str, wanted: str, count: int, requests: int) -> Status:
    """Client processes with so many requests each, killed when each has got a wanted frame."""
    command = [sys.executable, "-c", CLIENT, url, wanted, str(requests)]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == b"now\n"
    finally:
        for client in clients:
            os.kill(client.pid, signal.SIGKILL)
            client.communicate()
    async with Client.connect(url) as client:
        return await quiet(client)


def test_clients_killed_in_mid_stream_leave_nothing(home: Path, tiny: str) -> None:
    with daemon(home, tiny, "--page-size=8") as url:
        status = anyio.run(kill_clients, url, "Delta", 4, 1)
    assert status.pages.free + status.pages.cached == status.pages.total
    assert status.requests.cancelled_total + status.requests.finished_total == 4


@pytest.mark.parametrize("wanted", ["Preempted", "Resumed"])
def test_clients_killed_in_the_middle_of_swaps_leave_nothing(
    home: Path, tiny: str, wanted: str
) -> None:
    flags = ("--page-size=8", "--num-pages=64", "--num-host-pages=48", "--preemption-mode=swap")
    with daemon(home, tiny, *flags) as url:
        for round in range(1, 4):
            status = anyio.run(kill_clients, url, wanted, 2, 4)
            assert status.requests.cancelled_total + status.requests.finished_total == 8 * round
            assert status.pages.free + status.pages.cached == status.pages.total
            host = status.host_pages
            assert (host.free + host.cached, host.swapped) == (host.total, 0)
            assert status.requests.swapped == 0
    assert status.preemptions.swap > 0


def test_decisions_are_told_with_what_was_measured(home: Path, tiny: str) -> None:
    """A preemption in the feed, in the frame of its request and in the explanation is one."""

    async def main(url: str) -> None:
        async with Client.connect(url) as client, Client.connect(url) as watching:
            reasons: list[str] = []

            async def call(at: int) -> None:
                sent = frame(f"q{at}", "over and over", max_tokens=150, ignore_eos=True)
                frames = [got async for got in client.generate(sent)]
                reasons.extend(got.reason for got in frames if isinstance(got, Preempted))

            await together([lambda at=at: call(at) for at in range(6)])
            feed = watching.events(history=4096)
            told = []
            while sum(event.kind == "finished" for event in told) < 6:
                told.append(await anext(feed))
            await feed.aclose()
            preempted = [event for event in told if event.kind == "preempted"]
            assert sorted(event.text for event in preempted) == sorted(reasons) != []
            for event in preempted:
                assert event.swap_ms > 0
                assert event.recompute_ms > 0
                assert event.choice_of_mode == "estimate"
                assert event.text.startswith(f"{event.request} (#{event.handle}) gave way")
            explained = await watching.explain(preempted[0].request)
            kinds = [record.kind for record in explained.reasons]
            assert (explained.state, kinds[0], kinds[-1]) == ("ended", "accepted", "finished")
            assert preempted[0].text in [record.text for record in explained.reasons]

    flags = ("--page-size=8", "--num-pages=40", "--num-host-pages=64", "--no-prefix-cache")
    with daemon(home, tiny, *flags) as url:
        anyio.run(main, url)


async def in_a_crowd(url: str, sent: Generate) -> tuple[list[str], int]:
    """The texts of ``sent`` among strangers, and how often it was preempted."""
    result: list[tuple[list[str], int]] = []
    async with Client.connect(url) as client:

        async def main() -> None:
            texts, _, preemptions = await ask(client, sent)
            result.append((texts, preemptions))

        async def stranger(number: int) -> None:
            words = f"stranger {number} says " * (1 + number % 5)
            length = sent.params.max_tokens
            await ask(client, frame(f"s{number}", words, max_tokens=length, ignore_eos=True))

        calls: list[Callable[[], Awaitable[None]]] = [main]
        calls += [lambda i=i: stranger(i) for i in range(STRANGERS)]
        await together(calls)
    return result[0]


async def swapped_and_whole(url: str) -> None:
    """Sequences went to host memory, and nothing of them is left there."""
    async with Client.connect(url) as client:
        status = await quiet(client)
    assert status.preemptions.swap >= 1
    assert status.swapped_bytes > 0
    assert (status.preemptions.recompute, status.requests.swapped) == (0, 0)
    assert status.host_pages.swapped == 0 < status.host_pages.total


async def seeded_everywhere(url: str, tight: str, prompt: str, num_tokens: int) -> None:
    """One seeded request alone, among strangers, and where pages run out: one text."""
    params = Params(seed=7, max_tokens=num_tokens, ignore_eos=True)
    # less urgent than the strangers: where pages are short, it gives its own
    sent = Generate(id="seeded", prompt=prompt, params=params, priority=1)
    async with Client.connect(url) as client:
        alone, _, _ = await ask(client, sent)
    crowd, _ = await in_a_crowd(url, sent)
    squeezed, preemptions = await in_a_crowd(tight, sent)
    assert preemptions >= 1
    assert crowd == squeezed == alone


def test_a_seeded_text_is_the_same_everywhere(home: Path, tiny: str) -> None:
    flags = ("--page-size=8", "--dtype=bfloat16")
    with daemon(home, tiny, *flags) as url:
        other = home / "tight"
        other.mkdir()
        short = ("--num-pages=24", "--max-num-seqs=4", "--preemption-mode=swap")
        with daemon(other, tiny, *flags, *short) as tight:
            anyio.run(seeded_everywhere, url, tight, "it begins", 60)
            anyio.run(swapped_and_whole, tight)


@pytest.mark.slow
def test_a_seeded_text_of_the_embedded_model(home: Path) -> None:
    try:
        model = str(resolve(DEFAULT_MODEL).path)
    except ModelNotFound:
        pytest.skip("the embedded model is not in the cache: pagedd pull")
    with daemon(home, model) as url:
        other = home / "tight"
        other.mkdir()
        with daemon(other, model, "--num-pages=16", "--max-num-seqs=8") as tight:
            anyio.run(seeded_everywhere, url, tight, "The lighthouse keeper wrote", 150)
