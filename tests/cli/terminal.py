"""Commands in processes of their own: with pipes, or on a pseudo terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pagedd.paths import cache_dir

PATIENCE_S = 60.0  # on a busy machine a command may take long to begin
PAGEDD = [sys.executable, "-m", "pagedd.cli.main"]
# Makes the terminal on standard input the controlling one, so that its Ctrl-C is a signal.
_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the person who runs the tests, but where Python and its packages are."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PAGEDD_", "XDG_")) and name not in ("NO_COLOR", "TERM")
    }
    folders = {"HOME": str(home), "TMPDIR": str(home), "OMP_NUM_THREADS": "1"}
    alone = {"PAGEDD_HTTP": "off"}  # its port is everybody's
    return {**kept, **folders, **alone, "PYTHONIOENCODING": "utf-8", **more}


def with_built_kernels(env: Mapping[str, str]) -> dict[str, str]:
    """With the user's cache: an engine finds its kernels there, and need not compile them."""
    return {**env, "XDG_CACHE_HOME": str(cache_dir().parent)}


def run(
    *arguments: str,
    env: Mapping[str, str],
    stdin: bytes | int = subprocess.DEVNULL,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with pipes to its end."""
    given: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    return subprocess.run(
        [*PAGEDD, *arguments], capture_output=True, env=env, timeout=timeout, check=False, **given
    )


@contextmanager
def running(
    *arguments: str, env: Mapping[str, str], stdout: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with a pipe for its errors. It is killed at the end, so that a test which fails
    does not wait for it."""
    with subprocess.Popen(
        [*PAGEDD, *arguments], env=env, stdout=stdout, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Screen:
    """A command on a pseudo terminal: what it writes, and keys for it."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process = process
        self.output = b""
        self._master = master
        self._slave = slave
        self._seen = 0

    def expect(self, text: str) -> None:
        """Read until ``text`` has been written after what was expected before."""
        wanted = text.encode()
        deadline = time.monotonic() + PATIENCE_S  # a screen that goes on and on never falls silent
        while (at := self.output.find(wanted, self._seen)) < 0:
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"{text!r} did not come; there is {self.output!r}")
        self._seen = at + len(wanted)

    def type(self, keys: str) -> None:
        """Press keys; a line ends with \\n, Ctrl-C is \\x03, a byte that is no UTF-8 \\udcXX."""
        os.write(self._master, keys.encode(errors="surrogateescape"))

    def wait(self) -> int:
        """The exit code, once everything that was written is read: nobody ends who cannot write."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.05)[0]:
                self._read()
        code = self.process.wait(0)
        while select.select([self._master], [], [], 0)[0] and self._read():
            pass
        return code

    def modes(self) -> list[Any]:
        """The terminal's settings."""
        return termios.tcgetattr(self._slave)

    def _read(self) -> bool:
        if not select.select([self._master], [], [], PATIENCE_S)[0]:
            return False
        data = os.read(self._master, 65536)
        self.output += data
        return bool(data)


@contextmanager
def on_terminal(
    *arguments: str, env: Mapping[str, str], pagedd: Sequence[str] = PAGEDD
) -> Iterator[Screen]:
    """Run a command on a pseudo terminal. ``pagedd`` is the command itself."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", _ON_TERMINAL, *pagedd, *arguments]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=dict(env), start_new_session=True
    )
    try:
        yield Screen(process, master, slave)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
