"""What answers at an address where no websocket of pagedd did, so that an error can name it.

Standard library only. Nothing is sent but a plain GET, and no certificate is checked: no secret and
no question of anyone goes out, and whatever comes back only chooses a sentence.
"""

from __future__ import annotations

import socket
import ssl
from typing import Literal
from urllib.parse import urlsplit

Side = Literal["websocket", "http"]
PATIENCE_S = 3.0  # of each step
_MOST = 8192  # bytes of the answer that are looked at
_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def probe(url: str, *, encrypted: bool) -> Side | None:
    """Which side of a daemon is at the host and port of ``url``; None: none that is known."""
    try:
        parts = urlsplit(url)
        answer = _ask(parts.hostname or "", parts.port or (443 if encrypted else 80), encrypted)
    except (OSError, ValueError):
        return None
    return side_of(answer)


def side_of(answer: bytes) -> Side | None:
    """Whose refusal of a plain GET this is, head and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if body.lstrip().startswith(b'{"error":{"message":'):
        return "http"
    if head.startswith(b"HTTP/1.1 426 ") or b"Bearer KEY is needed" in body:
        return "websocket"
    return None


def _ask(host: str, port: int, encrypted: bool) -> bytes:
    with socket.create_connection((host, port), PATIENCE_S) as plain:
        if not encrypted:
            return _exchange(plain)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain, server_hostname=host) as secure:
            return _exchange(secure)


def _exchange(connection: socket.socket) -> bytes:
    connection.sendall(_REQUEST)
    answer = b""
    while len(answer) < _MOST and (piece := connection.recv(_MOST)):
        answer += piece
    return answer
