"""A connection to the daemon, for one thread: send a frame, wait for a frame.

A command has one request and no event loop, and must be up at once: so this is not the asynchronous
``pagedd.client``. The synchronous client of websockets keeps the connection alive by itself: a
daemon that is stopped or a half-open network is noticed within two ping intervals, while a silent
prefill is not cut.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

import msgspec
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.sync.client import ClientConnection, connect, unix_connect
from websockets.typing import Subprotocol

from pagedd import protocol
from pagedd.cli.interrupt import Interrupted, Interrupts
from pagedd.cli.terminal import Notice
from pagedd.codes import class_of
from pagedd.errors import PageddError, Unauthorized, Unreachable, UsageError

MAX_INCOMING_BYTES = 64 * 1024 * 1024  # a whole answer that did not stream is one frame
HANDSHAKE_TIMEOUT_S = 10.0
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
        if hello.version != protocol.VERSION:
            raise PageddError(
                f"the daemon at {url} speaks version {hello.version} of the protocol, this command "
                f"version {protocol.VERSION}"
            )
        self.hello = hello

    def send(self, frame: protocol.ClientFrame) -> None:
        """Errors: ``Lost``."""
        try:
            self._socket.send(self._encoder.encode(frame))
        except ConnectionClosed as error:
            raise self._lost(error) from error

    def receive(self, timeout: float | None = None) -> protocol.ServerFrame | None:
        """The next frame, or None when none came within ``timeout`` seconds. Errors: ``Lost``."""
        try:
            data = self._socket.recv(timeout=timeout)
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise self._lost(error) from error
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lost(self, error: ConnectionClosed) -> Lost:
        close = error.rcvd or error.sent
        if close is not None and close.code == 1009:
            return Lost("a frame was larger than this side takes, so the connection was closed")
        if close is not None and close.code == 1001:
            return Lost("the daemon is shutting down, the connection was closed")
        why = f": {close.reason}" if close is not None and close.reason else ""
        return Lost(f"the connection to the daemon was lost{why}")


def open_connection(url: str, api_key: str | None = None) -> Connection:
    """Connect to ``unix:PATH`` or ``ws://HOST:PORT``.

    Errors: ``Unreachable`` when trying again may help, ``Unauthorized`` and ``PageddError`` for a
    refusal that stays.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
    common: dict[str, Any] = {
        "subprotocols": [Subprotocol(protocol.SUBPROTOCOL_MSGPACK)],
        "additional_headers": headers,
        "compression": None,
        "open_timeout": HANDSHAKE_TIMEOUT_S,
        "close_timeout": 1.0,
        "ping_interval": protocol.PING_INTERVAL_S,
        "ping_timeout": protocol.PING_TIMEOUT_S,
        "max_size": MAX_INCOMING_BYTES,
    }
    try:
        if url.startswith("unix:"):
            socket = unix_connect(url.removeprefix("unix:"), uri="ws://localhost/", **common)
        else:
            # a proxy of the environment is for the web, not for one's own daemon
            socket = connect(url, proxy=None, **common)
    except InvalidStatus as error:
        raise _refused(url, error.response.status_code) from error
    except InvalidURI as error:
        raise UsageError(f"{url!r} is not an address: unix:PATH or ws://HOST:PORT") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise Unreachable(f"no daemon at {url}: start one with pagedd start") from error
    except TimeoutError as error:
        raise Unreachable(f"the daemon at {url} does not answer") from error
    except (OSError, EOFError, InvalidMessage) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreachable(f"no daemon at {url}: {reason}") from error
    except InvalidHandshake as error:
        raise PageddError(f"what answers at {url} is no pagedd: {error}") from error
    try:
        return Connection(socket, url)
    except BaseException:
        socket.close()
        raise


def open_ready(url: str, api_key: str | None, interrupts: Interrupts) -> Connection:
    """Connect, and wait while the daemon still loads its model. Errors: also ``Interrupted``."""
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
                    connection.receive(min(rest, LOADING_LOOK_S / 4))
            if interrupts.count:
                raise Interrupted("interrupted while the daemon was loading the model")
    finally:
        notice.clear()


def from_wire(error: protocol.Error) -> PageddError:
    """The exception of an ``error`` frame, with the exit code that belongs to it."""
    return class_of(error.code)(error.message)


def _refused(url: str, status: int) -> PageddError:
    if status == 401:
        return Unauthorized(
            f"the daemon at {url} wants a key, or another one: --api-key or PAGEDD_API_KEY"
        )
    if status == 503:
        return Unreachable(f"the daemon at {url} is not ready (HTTP 503)")
    return PageddError(f"the daemon at {url} refuses the connection (HTTP {status})")
