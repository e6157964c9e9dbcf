"""What an open dashboard costs the daemon: one load, watched by a dashboard now and then.

``python -m tests.tui.drop`` needs the embedded model and a quiet machine; about seven minutes.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import os
import pty
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from pagedd.client import Client
from pagedd.protocol import Delta, Generate, Params
from tests.tui.cost import drain

INPUT_LEN, OUTPUT_LEN = 96, 64
WARM_S = 2.0
PAGEDD = (sys.executable, "-m", "pagedd")


@contextmanager
def daemon(folder: Path) -> Iterator[str]:
    """One of its own; its address."""
    socket = folder / "d.sock"
    flags = [
        "--socket",
        str(socket),
        "--listen",
        "off",
        "--http",
        "off",
        "--log-file",
        str(folder / "log"),
    ]
    subprocess.run([*PAGEDD, "start", "--detach", *flags], check=True)
    try:
        yield f"unix:{socket}"
    finally:
        subprocess.run([*PAGEDD, "stop", "--url", f"unix:{socket}"], check=True)


@contextmanager
def dashboard(url: str) -> Iterator[None]:
    """``pagedd top`` in a terminal of 120 × 40 whose output somebody reads."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [*PAGEDD, "top", "--url", url])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    drain(fd, 3.0)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            drain(fd, 0.2)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()
        os.write(fd, b"q")
        drain(fd, 2.0)
        os.close(fd)
        os.waitpid(pid, 0)


class Load:
    """So many requests at all times over one connection, and the tokens that came so far."""

    def __init__(self, client: Client, concurrency: int) -> None:
        self._client = client
        self._concurrency = concurrency
        self._dice = random.Random(0)
        self.tokens = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            for worker in range(self._concurrency):
                tasks.start_soon(self._ask, worker)

    async def _ask(self, worker: int) -> None:
        for number in itertools.count():
            prompt = [self._dice.randrange(1000, 40_000) for _ in range(INPUT_LEN)]
            params = Params(max_tokens=OUTPUT_LEN, temperature=0.0, ignore_eos=True)
            frame = Generate(f"{worker}-{number}", prompt_tokens=prompt, params=params)
            async for received in self._client.generate(frame):
                if isinstance(received, Delta):
                    self.tokens += len(received.tokens)

    async def speed(self, seconds: float) -> float:
        """Tokens a second, over some time from now."""
        began, before = time.perf_counter(), self.tokens
        await anyio.sleep(seconds)
        return (self.tokens - before) / (time.perf_counter() - began)


async def measure(url: str, pairs: int, concurrency: int, seconds: float) -> list[float]:
    """With a dashboard, of the mean of before and after without one; the load goes on all along."""
    async with Client.connect(url) as client, anyio.create_task_group() as tasks:
        load = Load(client, concurrency)
        tasks.start_soon(load.run)
        await load.speed(3 * WARM_S)
        before, ratios = await load.speed(seconds), []
        for _ in range(pairs):
            context = dashboard(url)
            await anyio.to_thread.run_sync(context.__enter__)
            watched = await load.speed(seconds)
            await anyio.to_thread.run_sync(context.__exit__, None, None, None)
            await anyio.sleep(WARM_S)
            after = await load.speed(seconds)
            ratios.append(2 * watched / (before + after))
            print(
                f"alone {before:7.1f} and {after:7.1f} tokens/s, with a dashboard {watched:7.1f}: "
                f"{ratios[-1] - 1:+.1%}",
                flush=True,
            )
            before = after
        tasks.cancel_scope.cancel()
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, daemon(Path(name)) as url:
        ratios = anyio.run(measure, url, args.pairs, args.concurrency, args.seconds)
    middle = statistics.median(ratios) - 1
    spread = statistics.stdev(ratios) / len(ratios) ** 0.5
    print(
        f"{args.pairs} pairs: median {middle:+.1%}, mean {statistics.mean(ratios) - 1:+.1%}, "
        f"standard error {spread:.1%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
