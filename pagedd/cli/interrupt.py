"""Ctrl-C as a fact that a loop looks at, instead of an exception anywhere."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from pagedd.errors import PageddError


class Interrupted(PageddError):
    """The person pressed Ctrl-C."""

    exit_code = 130


@contextmanager
def clean_end() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack: line editing gives the terminal back as it was."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def prompt_answers_signals() -> Iterator[None]:
    """While it is entered, ``input()`` cannot sleep through a signal.

    A signal that comes between two waits of ``input()`` is only noted, and its handler would run
    after the next key. So a thread hears of every signal and interrupts the wait, with a signal
    that means nothing, until the handler has run.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    left = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while numbers := ours.recv(64):
            if set(numbers) == {signal.SIGURG}:
                continue
            while not left.wait(0.05):
                signal.pthread_kill(main, signal.SIGURG)

    before = signal.signal(signal.SIGURG, lambda number, frame: None)
    wakeup = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(wakeup)
        theirs.close()
        thread.join()
        ours.close()
        signal.signal(signal.SIGURG, before)


class Interrupts:
    """Counts SIGINT while it is entered; the handler from before comes back afterwards."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
