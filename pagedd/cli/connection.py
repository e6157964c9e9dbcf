"""A connection to the daemon, for one thread: send a frame, wait for a frame.

A command has one request and no event loop, and must be up at once: so this is not the asynchronous
``pagedd.client``. The synchronous client of websockets keeps the connection alive by itself: a
daemon that is stopped or a half-open network is noticed within two ping intervals, while a silent
prefill is not cut.
"""

from __future__ import annotations

import sys
import time
from typing import Self

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect, unix_connect

from pagedd import protocol
from pagedd.cli.interrupt import Interrupted, Interrupts
from pagedd.cli.terminal import Notice, check_reader
from pagedd.codes import class_of
from pagedd.errors import PageddError, Unreachable
from pagedd.reach import (
    HANDSHAKE_TIMEOUT_S,
    PATH,
    check_version,
    clean_errors,
    connecting,
    why_lost,
)

LOADING_LOOK_S = 0.4


class Lost(Unreachable):
    """The connection ended in the middle."""


class Connection:
    """An open connection; ``hello`` is the daemon's first frame."""

    def __init__(self, socket: ClientConnection, url: str) -> None:
        self._socket = socket.__enter__()  # to be held open: websockets warns of any other way
        self._decoder = msgspec.msgpack.Decoder(protocol.ServerFrame)
        self._encoder = msgspec.msgpack.Encoder()
        self.url = url
        hello = self.receive(HANDSHAKE_TIMEOUT_S)
        if isinstance(hello, protocol.Error):
            raise from_wire(hello)
        if not isinstance(hello, protocol.Hello):
            raise Unreachable(f"the daemon at {url} does not answer")
        check_version(hello, url)
        self.hello = hello

    def send(self, frame: protocol.ClientFrame) -> None:
        """Errors: ``Lost``."""
        try:
            self._socket.send(self._encoder.encode(frame))
        except ConnectionClosed as error:
            raise Lost(why_lost(error)) from error

    def receive(self, timeout: float | None = None) -> protocol.ServerFrame | None:
        """The next frame, or None when none came within ``timeout`` seconds. Errors: ``Lost``."""
        try:
            data = self._socket.recv(timeout=timeout)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise Lost(why_lost(error)) from error
        try:
            return self._decoder.decode(data if isinstance(data, bytes) else data.encode())
        except msgspec.ValidationError:
            return None  # of a type that came after this client
        except msgspec.DecodeError as error:
            raise PageddError(f"what answers at {self.url} is no pagedd: {error}") from error

    def close(self) -> None:
        """Close; the daemon cancels what is still open."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_connection(url: str, api_key: str | None = None) -> Connection:
    """Connect to ``unix:PATH`` or ``ws://HOST:PORT``.

    Errors: ``Unreachable`` when trying again may help, ``Unauthorized`` and ``PageddError`` for a
    refusal that stays.
    """
    with clean_errors(url):
        if url.startswith(PATH):
            socket = unix_connect(url.removeprefix(PATH), **connecting(url, api_key))
        else:
            socket = connect(**connecting(url, api_key))
    try:
        return Connection(socket, url)
    except BaseException:
        socket.close()
        raise


def open_ready(url: str, api_key: str | None, interrupts: Interrupts) -> Connection:
    """Connect, and wait while the daemon still loads its model.

    Errors: also ``Interrupted``, and ``BrokenPipeError`` when who reads standard output has left.
    """
    notice = Notice()
    try:
        while True:
            connection = open_connection(url, api_key)
            if connection.hello.max_model_len:
                return connection
            notice.show("the daemon is loading the model")
            with connection:
                until = time.monotonic() + LOADING_LOOK_S
                while not interrupts.count and (rest := until - time.monotonic()) > 0:
                    check_reader(sys.stdout)
                    connection.receive(min(rest, LOADING_LOOK_S / 4))
            if interrupts.count:
                raise Interrupted("interrupted while the daemon was loading the model")
    finally:
        notice.clear()


def from_wire(error: protocol.Error) -> PageddError:
    """The exception of an ``error`` frame, with the exit code that belongs to it."""
    return class_of(error.code)(error.message)
