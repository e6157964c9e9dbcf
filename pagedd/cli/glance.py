"""One look at the daemon's status, as fast as can be: a plain GET on its Unix socket.

The standard library alone: the imports of a websocket and of msgspec take a client longer than all
else. What is not as expected here is no error but None: the websocket is tried then, and it knows
how to tell what is wrong.
"""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pagedd.protocol import Status

UNIX = "unix:"
STATUS_PATH = "/status"  # pagedd.protocol says so; a test compares
TIMEOUT_S = 1.0  # of each step; a daemon that takes longer is asked again, with more patience
_REQUEST = f"GET {STATUS_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
_PIECE = 65536
_MAPPINGS = ("step_ms",)  # of names that are data
_OPTIONAL = ("reason", "advice")


def glance(url: str) -> bytes | None:
    """The status of the daemon at ``unix:PATH`` as JSON; None for other addresses or on trouble."""
    if not url.startswith(UNIX):
        return None
    try:
        answer = _exchange(url.removeprefix(UNIX))
    except OSError:
        return None
    head, _, body = answer.partition(b"\r\n\r\n")
    return body.strip() if head.startswith(b"HTTP/1.1 200 ") and body else None


def status_of(body: bytes) -> Status | None:
    """An object with the fields of ``Status``, as far as the daemon has them; None: no JSON."""
    try:
        fields = json.loads(body)
    except ValueError:
        return None
    for name, value in fields.items():
        if isinstance(value, dict) and name not in _MAPPINGS:
            fields[name] = SimpleNamespace(**value)
    return cast("Status", SimpleNamespace(**(dict.fromkeys(_OPTIONAL) | fields)))


def _exchange(path: str) -> bytes:
    """All that comes until the daemon closes the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(path)
        connection.sendall(_REQUEST)
        pieces = []
        while piece := connection.recv(_PIECE):
            pieces.append(piece)
    return b"".join(pieces)
