"""Fake daemons that a process with all imports forks off, as if this process had started them."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from tests.server.nursery import Order

PR_SET_CHILD_SUBREAPER = 36
ROOT = Path(__file__).parents[2]


class Hatched:
    """A child of this process; of the interface of ``subprocess.Popen`` what the tests use."""

    def __init__(self, pid: int, errors: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._stderr = os.fdopen(errors, "rb", buffering=0)
        self._said = b""

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self, timeout: float) -> int:
        if self.poll() is None:
            pidfd = os.pidfd_open(self.pid)
            try:
                self._await(pidfd, time.monotonic() + timeout)
            finally:
                os.close(pidfd)
        code = self._reap(0)
        assert code is not None
        return code

    def communicate(self, timeout: float) -> tuple[None, str]:
        """Its standard error, when nobody has that open any more and it has ended."""
        deadline = time.monotonic() + timeout
        while not self._stderr.closed:
            self._await(self._stderr.fileno(), deadline)
            data = self._stderr.read(1 << 16)
            self._said += data
            if not data:
                self._stderr.close()
        self.wait(deadline - time.monotonic())
        return None, self._said.decode()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # not reaped, so its pid is its own
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def _await(self, fd: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        left = deadline - time.monotonic()
        if not poll.poll(max(0.0, left) * 1000):
            raise subprocess.TimeoutExpired(f"fake daemon {self.pid}", left)


class Nursery:
    """The process that forks daemons; it ends when this one does, or drops its socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._env = set(os.environb)  # less what a library has set unseen, which stays set
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.nursery", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
            )

    def hatch(self, start: str, pass_fds: tuple[int, ...]) -> Hatched:
        """A daemon with the environment, standard input and output of this process.

        Not with what else of it has changed since the first daemon, such as a limit.
        """
        reader, writer = os.pipe()
        env = dict(os.environb)
        unset = tuple(self._env - set(env))
        order = Order(start, env, unset, str(ROOT), (0, 1, 2, *pass_fds))
        with self._lock, adopting():
            data = msgspec.msgpack.encode(order)
            socket.send_fds(self._socket, [data], [0, 1, writer, *pass_fds])
            answer = self._socket.recv(100)
        os.close(writer)
        assert answer, "the nursery has ended"
        return Hatched(int(answer), reader)


@cache
def nursery() -> Nursery:
    """The one of this process, from its first daemon on."""
    return Nursery()


@contextmanager
def adopting() -> Iterator[None]:
    """Be the parent of descendants whose parent ends meanwhile."""
    set_subreaper(True)
    try:
        yield
    finally:
        set_subreaper(False)


def set_subreaper(whether: bool) -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
