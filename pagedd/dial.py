"""How a client reaches a daemon: from an address to an open websocket, or one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.typing import Subprotocol

from pagedd.errors import PageddError, Unauthorized, Unreachable, UsageError
from pagedd.protocol import (
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    SUBPROTOCOL_MSGPACK,
    VERSION,
    Hello,
)

HANDSHAKE_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
MAX_INCOMING_BYTES = 64 * 1024 * 1024  # a whole answer that did not stream is one frame


async def dial(url: str, key: str | None) -> tuple[ClientConnection, Hello]:
    """Connect to ``unix:PATH`` or ``ws://HOST:PORT``, and read the first frame.

    Raises Unreachable when no daemon answers, Unauthorized when it wants a key, PageddError for
    any other refusal, UsageError when ``url`` is no address.
    """
    with _clean_errors(url):
        socket = await _open(url, key)
    try:
        return socket, await _hello(socket, url)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await socket.close()
        raise


def lost(url: str, closed: ConnectionClosed) -> Unreachable:
    """What a closed connection means, as a sentence."""
    close = closed.rcvd or closed.sent
    if close is not None and close.code == 1009:
        return Unreachable(f"{url}: a frame was larger than allowed, the connection was closed")
    if close is not None and close.code == 1001:
        return Unreachable(f"the daemon at {url} is shutting down, the connection was closed")
    reason = f": {close.reason}" if close is not None and close.reason else ""
    return Unreachable(f"the connection to the daemon at {url} was lost{reason}")


async def _open(url: str, key: str | None) -> ClientConnection:
    headers = {"Authorization": f"Bearer {key}"} if key else None
    if url.startswith("unix:"):
        opening = unix_connect(
            url.removeprefix("unix:"),
            uri="ws://localhost/",
            subprotocols=[Subprotocol(SUBPROTOCOL_MSGPACK)],
            additional_headers=headers,
            compression=None,
            open_timeout=HANDSHAKE_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_size=MAX_INCOMING_BYTES,
        )
    else:
        opening = connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL_MSGPACK)],
            additional_headers=headers,
            compression=None,
            open_timeout=HANDSHAKE_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_size=MAX_INCOMING_BYTES,
            proxy=None,  # a proxy of the environment is for the web, not for one's own daemon
        )
    return await opening


async def _hello(socket: ClientConnection, url: str) -> Hello:
    try:
        with anyio.fail_after(HANDSHAKE_TIMEOUT_S):
            data = await socket.recv(decode=False)
        hello = msgspec.msgpack.decode(data, type=Hello)
    except TimeoutError:
        raise Unreachable(f"the daemon at {url} does not answer") from None
    except ConnectionClosed as closed:
        raise lost(url, closed) from None
    except msgspec.DecodeError:
        raise PageddError(f"what answers at {url} is no pagedd") from None
    if hello.version != VERSION:
        raise PageddError(
            f"the daemon at {url} speaks version {hello.version} of the protocol, this client "
            f"version {VERSION}"
        )
    return hello


@contextmanager
def _clean_errors(url: str) -> Iterator[None]:
    """What can go wrong while connecting, as one sentence with the right exit code."""
    try:
        yield
    except InvalidURI:
        raise UsageError(f"{url!r} is no address: unix:PATH or ws://HOST:PORT") from None
    except InvalidStatus as error:
        status = error.response.status_code
        if status == 401:
            raise Unauthorized(f"the daemon at {url} wants a key, or another one") from None
        if status == 503:
            raise Unreachable(f"the daemon at {url} takes no connections (HTTP 503)") from None
        raise PageddError(f"the daemon at {url} refuses the connection (HTTP {status})") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise Unreachable(f"no daemon at {url}: start one with pagedd start") from None
    except TimeoutError:
        raise Unreachable(f"the daemon at {url} does not answer") from None
    except (OSError, EOFError, InvalidMessage) as error:
        raise Unreachable(f"no daemon at {url}: {error}") from None
    except InvalidHandshake as error:
        raise PageddError(f"what answers at {url} is no pagedd: {error}") from None
