"""What an open dashboard costs the daemon: pairs of runs of the same load, without and with it.

``python -m tests.tui.drop`` needs the embedded model and a quiet machine; about five minutes.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tui.cost import drain

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


def speed(url: str, concurrency: int, seed: int, folder: Path) -> float:
    """Output tokens a second of one run."""
    result = folder / "run.json"
    load = {
        "--url": url,
        "--concurrency": str(concurrency),
        "--num-requests": str(8 * concurrency),
        "--input-len": "96",
        "--output-len": "64",
        "--seed": str(seed),
        "--json": str(result),
    }
    flags = ["--fixed-len", *(word for pair in load.items() for word in pair)]
    subprocess.run([*PAGEDD, "bench", *flags], check=True, capture_output=True)
    return float(json.loads(result.read_text())["output_tokens_per_s"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--concurrency", type=int, default=16)
    args = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with daemon(folder) as url:
            speed(url, args.concurrency, 0, folder)  # warm
            for pair in range(args.pairs):
                sides = [False, True] if pair % 2 else [True, False]
                found = {}
                for watched in sides:
                    seed = 100 * pair + watched + 1
                    if watched:
                        with dashboard(url):
                            found[watched] = speed(url, args.concurrency, seed, folder)
                    else:
                        found[watched] = speed(url, args.concurrency, seed, folder)
                ratios.append(found[True] / found[False])
                print(
                    f"alone {found[False]:7.1f} tokens/s, with a dashboard {found[True]:7.1f}: "
                    f"{ratios[-1] - 1:+.1%}",
                    flush=True,
                )
    print(f"median of {args.pairs} pairs: {statistics.median(ratios) - 1:+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
