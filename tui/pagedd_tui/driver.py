"""The keyboard: Textual's driver, but for how it waits for keys."""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

# Not public, and the only thing that knows what terminals send.
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

TICK_S = 0.1  # a lone escape is told from the beginning of a sequence by what follows so soon
TICKS = 10  # after the last byte; no sequence is waited for longer


class PatientDriver(LinuxDriver):
    """Sleeps until a key comes; Textual's wakes ten times a second, even while all else rests.

    A byte that is no UTF-8 is taken as a replacement character; Textual's thread ends at it.
    """

    def __init__(self, app: App[Any], **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._stopped, self._stop = os.pipe()

    def disable_input(self) -> None:
        """End the thread that reads keys; it may be started again."""
        if self._key_thread is not None and self._key_thread.is_alive():
            os.write(self._stop, b"\0")
        super().disable_input()

    def run_input_thread(self) -> None:
        """Carry what is typed to the application until input is disabled."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            ticks = 0
            while True:
                ready = {key.fd for key, _ in selector.select(TICK_S if ticks else None)}
                if self._stopped in ready:
                    os.read(self._stopped, 1)
                    break
                ticks -= 1
                if self.fileno in ready:
                    ticks = TICKS
                    if not (data := os.read(self.fileno, 4096)):
                        break  # the terminal is gone
                    self._carry(parser.feed(decode(data)))
                self._carry(parser.tick())
        with suppress(EOFError):
            self._carry(parser.feed(""))

    def _carry(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.process_message(message)
