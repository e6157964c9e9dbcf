"""What the client with an event loop and the one without share: settings, errors, sentences."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.typing import Subprotocol

from pagedd.errors import PageddError, Unauthorized, Unreachable, UsageError
from pagedd.probe import probe, side_of
from pagedd.protocol import PING_INTERVAL_S, PING_TIMEOUT_S, SUBPROTOCOL_MSGPACK, VERSION, Hello

HANDSHAKE_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
MAX_INCOMING_BYTES = 64 * 1024 * 1024  # a whole answer that did not stream is one frame
PATH = "unix:"
USUAL_PORT = 7411  # of --listen; a test compares
LONGEST_REASON = 200  # bytes of a refusal that are shown
FAILURES = (InvalidHandshake, InvalidURI, OSError, EOFError)  # of connecting
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
    except FAILURES as error:
        raise explained(url, error) from error


def explained(url: str, error: Exception) -> PageddError:
    """What one of ``FAILURES`` means. It may ask the address again, for some seconds."""
    match error:
        case InvalidStatus():
            return _refused(url, error)
        case InvalidURI():
            return UsageError(f"{url!r} is not an address: {ADDRESSES}")
        case FileNotFoundError() | ConnectionRefusedError():
            return Unreachable(f"no daemon at {url}: start one with pagedd start")
        case TimeoutError():
            return Unreachable(f"the daemon at {url} does not answer")
        case ssl.SSLCertVerificationError():
            return PageddError(
                f"the certificate of the daemon at {url} is not vouched for "
                f"({error.verify_message}): name the file of one that is in SSL_CERT_FILE"
            )
        case ssl.SSLError():
            no_tls = Unreachable(f"no encryption with what answers at {url}: try {_other(url)}")
            return _wrong_side(url) or no_tls
        case InvalidHandshake() if not isinstance(error, InvalidMessage):
            return PageddError(f"what answers at {url} is no pagedd: {error}")
    reason = getattr(error, "strerror", None) or str(error) or "the connection was closed"
    answered = isinstance(error, ConnectionError | EOFError | InvalidMessage)
    found = _wrong_side(url) if answered else None
    return found or Unreachable(f"no daemon at {url}: {reason}")


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


def _refused(url: str, error: InvalidStatus) -> PageddError:
    response = error.response
    status, body = response.status_code, bytes(response.body or b"")
    if side_of(b"\r\n\r\n" + body) == "http":
        return _http_side(url, asked=url)
    if status == 401:
        return Unauthorized(
            f"the daemon at {url} wants a key, or another one: --api-key or PAGEDD_API_KEY"
        )
    if status == 503:
        return Unreachable(f"the daemon at {url} is not ready (HTTP 503)")
    said = body.decode("utf-8", "replace").strip() if len(body) <= LONGEST_REASON else ""
    why = f"{said}, " if said else ""
    return PageddError(f"the daemon at {url} refuses the connection ({why}HTTP {status})")


def _wrong_side(url: str) -> PageddError | None:
    """For an address that answers, but not as its scheme says; None: it is not a daemon's."""
    if url.startswith(PATH):
        return None
    encrypted = not url.startswith("wss://")
    match probe(url, encrypted=encrypted):
        case "http":
            return _http_side(_other(url), asked=url)
        case "websocket":
            how = "wants encryption" if encrypted else "does not encrypt"
            return Unreachable(f"the daemon at {url} {how}: try {_other(url)}")
    return None


def _http_side(url: str, *, asked: str) -> PageddError:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return PageddError(
        f"{asked} is the HTTP side of a daemon: commands use its websocket (--listen), which is "
        f"{parts.scheme}://{host}:{USUAL_PORT} unless it was told otherwise"
    )


def _other(url: str) -> str:
    """The same place with encryption if it is without, and the other way round."""
    scheme, _, rest = url.partition("://")
    return f"{'ws' if scheme == 'wss' else 'wss'}://{rest}"
