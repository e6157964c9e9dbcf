"""What the client with an event loop and the one without share: settings, errors, sentences."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.typing import Subprotocol

from pagedd.errors import PageddError, Unauthorized, Unreachable, UsageError
from pagedd.protocol import PING_INTERVAL_S, PING_TIMEOUT_S, SUBPROTOCOL_MSGPACK, VERSION, Hello

HANDSHAKE_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
MAX_INCOMING_BYTES = 64 * 1024 * 1024  # a whole answer that did not stream is one frame
PATH = "unix:"
ADDRESSES = "unix:PATH, ws://HOST:PORT or wss://HOST:PORT"


def connecting(url: str, key: str | None) -> dict[str, Any]:
    """Arguments of websockets' ``connect``, or ``unix_connect`` where ``url`` is a ``PATH``."""
    return {
        "uri": "ws://localhost/" if url.startswith(PATH) else url,
        "subprotocols": [Subprotocol(SUBPROTOCOL_MSGPACK)],
        "additional_headers": {"Authorization": f"Bearer {key}"} if key else None,
        "compression": None,
        "open_timeout": HANDSHAKE_TIMEOUT_S,
        "close_timeout": CLOSE_TIMEOUT_S,
        "ping_interval": PING_INTERVAL_S,
        "ping_timeout": PING_TIMEOUT_S,
        "max_size": MAX_INCOMING_BYTES,
        "proxy": None,  # a proxy of the environment is for the web, not for one's own daemon
    }


@contextmanager
def clean_errors(url: str) -> Iterator[None]:
    """What can go wrong while connecting, as one sentence with the right exit code."""
    try:
        yield
    except InvalidStatus as error:
        raise _refused(url, error.response.status_code) from error
    except InvalidURI as error:
        raise UsageError(f"{url!r} is not an address: {ADDRESSES}") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise Unreachable(f"no daemon at {url}: start one with pagedd start") from error
    except TimeoutError as error:
        raise Unreachable(f"the daemon at {url} does not answer") from error
    except ssl.SSLCertVerificationError as error:
        raise PageddError(
            f"the certificate of the daemon at {url} is not vouched for "
            f"({error.verify_message}): name the file of one that is in SSL_CERT_FILE"
        ) from error
    except ssl.SSLError as error:
        raise Unreachable(f"no encryption with what answers at {url}: try ws://") from error
    except (OSError, EOFError, InvalidMessage) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreachable(f"no daemon at {url}: {reason}") from error
    except InvalidHandshake as error:
        raise PageddError(f"what answers at {url} is no pagedd: {error}") from error


def check_version(hello: Hello, url: str) -> None:
    """Errors: ``PageddError`` if this client does not know the daemon's protocol."""
    if hello.version != VERSION:
        raise PageddError(
            f"the daemon at {url} speaks version {hello.version} of the protocol, this client "
            f"version {VERSION}"
        )


def why_lost(closed: ConnectionClosed) -> str:
    """What a closed connection means, as a sentence without a full stop."""
    close = closed.rcvd or closed.sent
    if close is not None and close.code == 1009:
        return "a frame was larger than this side takes, so the connection was closed"
    if close is not None and close.code == 1001:
        return "the daemon is shutting down, the connection was closed"
    why = f": {close.reason}" if close is not None and close.reason else ""
    return f"the connection to the daemon was lost{why}"


def _refused(url: str, status: int) -> PageddError:
    if status == 401:
        return Unauthorized(
            f"the daemon at {url} wants a key, or another one: --api-key or PAGEDD_API_KEY"
        )
    if status == 503:
        return Unreachable(f"the daemon at {url} is not ready (HTTP 503)")
    return PageddError(f"the daemon at {url} refuses the connection (HTTP {status})")
