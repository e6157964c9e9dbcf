"""One look at the daemon's status, as fast as can be: a plain GET on its Unix socket.

A websocket costs a client 50 ms of imports before its first byte. What is not as expected here is
no error but None: the websocket is tried then, and knows how to tell what is wrong.
"""

from __future__ import annotations

import socket

import msgspec

from pagedd.protocol import STATUS_PATH, Status

UNIX = "unix:"
TIMEOUT_S = 1.0  # of each step; a daemon that takes longer is asked again, with more patience
_REQUEST = f"GET {STATUS_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
_PIECE = 65536


def glance(url: str) -> Status | None:
    """The status of the daemon at ``unix:PATH``; None for other addresses and on any trouble."""
    if not url.startswith(UNIX):
        return None
    try:
        answer = _exchange(url.removeprefix(UNIX))
    except OSError:
        return None
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        return None
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        return None


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
