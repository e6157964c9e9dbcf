"""How a client with an event loop reaches a daemon: an open websocket, or one clear error."""

from __future__ import annotations

import anyio
import msgspec
from anyio import to_thread
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed

from pagedd.errors import PageddError, Unreachable
from pagedd.protocol import Hello
from pagedd.reach import (
    FAILURES,
    HANDSHAKE_TIMEOUT_S,
    PATH,
    check_version,
    connecting,
    explained,
    why_lost,
)


async def dial(url: str, key: str | None) -> tuple[ClientConnection, Hello]:
    """Connect to ``unix:PATH`` or ``ws://HOST:PORT``, and read the first frame.

    Raises Unreachable when no daemon answers, Unauthorized when it wants a key, PageddError for
    any other refusal, UsageError when ``url`` is no address.
    """
    try:
        if url.startswith(PATH):
            socket = await unix_connect(url.removeprefix(PATH), **connecting(url, key))
        else:
            socket = await connect(**connecting(url, key))
    except FAILURES as error:  # in a thread: the address may be asked what it is
        raise await to_thread.run_sync(explained, url, error, abandon_on_cancel=True) from error
    try:
        return socket, await _hello(socket, url)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await socket.close()
        raise


async def _hello(socket: ClientConnection, url: str) -> Hello:
    try:
        with anyio.fail_after(HANDSHAKE_TIMEOUT_S):
            data = await socket.recv(decode=False)
        hello = msgspec.msgpack.decode(data, type=Hello)
    except TimeoutError:
        raise Unreachable(f"the daemon at {url} does not answer") from None
    except ConnectionClosed as closed:
        raise Unreachable(why_lost(closed)) from None
    except msgspec.DecodeError:
        raise PageddError(f"what answers at {url} is no pagedd") from None
    check_version(hello, url)
    return hello
