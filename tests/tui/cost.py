"""What the dashboard costs: its share of a core under a pseudo terminal of 120 × 40.

``python -m tests.tui.cost`` prints a table; it takes about a minute and wants a quiet machine.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import random
import select
import statistics
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator

import anyio
import psutil

from pagedd.cli.top import IN_HUGE_PAGES
from pagedd.errors import RequestNotFound
from pagedd.protocol import Counters, Explanation, Hello, Limits, PageCells, SequenceRow, State
from pagedd_tui.app import run_top
from pagedd_tui.palette import choose
from pagedd_tui.source import Item

SETTLE_S = 4.0
MEASURE_S = 8.0
HZ = 10
ROWS = 40
# what it is called, pages, changes of each frame, the most that it may take
CASES = (
    ("8,192 pages, 500 changes", 8192, 500, 0.30),
    ("100,000 pages, 500 changes", 100_000, 500, 0.40),
    ("idle daemon, 8,192 pages", 8192, 0, 0.05),
)


class Restless:
    """A daemon at which so many pages change ten times a second; none: one that does nothing."""

    title = "measured"
    can_command = True

    def __init__(self, pages: int, changes: int) -> None:
        self._pages = pages
        self._changes = changes
        self._random = random.Random(1)

    async def items(self) -> AsyncIterator[Item]:
        limits = Limits(1 << 24, 1024, 64, 64, 20, 49152)
        yield Hello(1, "boot", "measured", 8192, 32, self._pages, 1024, limits, [])
        yield self._keyframe()
        frame = 1
        while True:
            await anyio.sleep(1 / HZ)
            if self._changes:
                frame += 1
                yield self._change(frame)

    async def explain(self, handle: int) -> Explanation:
        raise RequestNotFound("nobody asks while it is measured")

    async def cancel(self, handle: int) -> None:
        raise RequestNotFound("nobody cancels while it is measured")

    async def reprioritize(self, handle: int, priority: int) -> None:
        raise RequestNotFound("nobody does so while it is measured")

    def _keyframe(self) -> State:
        draw = self._random
        cells = bytes(draw.choice((0, 1, 1, 1, 2, 3)) for _ in range(self._pages))
        owners = [draw.randrange(1, ROWS + 1) if cell in (1, 2) else 0 for cell in cells]
        host = PageCells(bytes(draw.choice((0, 1, 3)) for _ in range(1024)), n=1024)
        pages = PageCells(cells, n=self._pages)
        return State(1, time.time(), True, pages, host, owners, self._rows(1), [], counters(1))

    def _change(self, frame: int) -> State:
        draw = self._random
        ids = sorted(draw.sample(range(self._pages), self._changes))
        cells = bytes(draw.choice((0, 1, 1, 2, 3)) for _ in ids)
        owners = [draw.randrange(1, ROWS + 1) if cell in (1, 2) else 0 for cell in cells]
        pages, host = PageCells(cells, ids=ids), PageCells(b"", ids=[])
        rows = self._rows(frame)
        return State(frame, time.time(), False, pages, host, owners, rows, [], counters(frame))

    def _rows(self, frame: int) -> list[SequenceRow]:
        return [
            SequenceRow(n, f"r{n}", 0, "decoding", 0, 96, frame + n, 96 + frame + n, 5, 0, 12.0)
            for n in range(1, ROWS + 1)
        ]


def counters(frame: int) -> Counters:
    phases = {"plan": 0.2, "build": 0.3, "execute": 20 + frame % 7, "sample": 0.5, "commit": 0.2}
    return Counters(ROWS, 5, 2, 0.8, 0.3, 0.35, 400.0 + frame % 50, frame // 9, phases)


def measure(pages: int, changes: int) -> float:
    """The share of a core that the dashboard took."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.environ["COLORTERM"] = "truecolor"
        arguments = [sys.executable, "-m", "tests.tui.cost", "--child", str(pages), str(changes)]
        os.execve(sys.executable, arguments, os.environ | IN_HUGE_PAGES)  # as `pagedd top` does
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    try:
        drain(fd, SETTLE_S)
        before, began = spent(pid), time.monotonic()
        written = drain(fd, MEASURE_S)
        share = (spent(pid) - before) / (time.monotonic() - began)
        assert written or not changes, "nothing was drawn"
        return share
    finally:
        os.write(fd, b"q")
        drain(fd, 1.0)
        os.close(fd)
        os.waitpid(pid, 0)


def spent(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def drain(fd: int, seconds: float) -> int:
    """Read what the program draws, as a terminal does; how many bytes."""
    end, count = time.monotonic() + seconds, 0
    while (rest := end - time.monotonic()) > 0:
        if select.select([fd], [], [], rest)[0]:
            try:
                count += len(os.read(fd, 1 << 16))
            except OSError:  # it has ended
                return count
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2, type=int, metavar=("PAGES", "CHANGES"))
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if args.child:
        palette = choose(None, ascii=False, no_color=False)
        return run_top(Restless(*args.child), palette=palette, map_hz=HZ)
    print(f"{'share of a core at 120 × 40, 10 Hz':<36} median   runs")
    for name, pages, changes, most in CASES:
        shares = [measure(pages, changes) for _ in range(args.repeats)]
        runs = "  ".join(f"{share:.1%}" for share in shares)
        print(f"{name:<36} {statistics.median(shares):>6.1%}   {runs}   (line: {most:.0%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
