"""HTTP by hand: what no client library would send."""

from __future__ import annotations

import json
import socket
from http.client import HTTPResponse
from typing import Any, NamedTuple

from tests.http.edges import Served
from tests.server.harness import PATIENCE_S


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object, which every refusal must have."""
        assert self.headers["content-type"] == "application/json"
        error = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        return dict(error)


def connect(served: Served, *, receive_buffer: int | None = None) -> socket.socket:
    """A connection to the HTTP edge."""
    host, _, port = served.http.removeprefix("http://").rpartition(":")
    sock = socket.socket()
    sock.settimeout(PATIENCE_S)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect((host, int(port)))
    return sock


def head(method: str, path: str, *fields: str, version: str = "HTTP/1.1") -> bytes:
    """The head of a request; ``fields`` as ``Name: value``."""
    lines = [f"{method} {path} {version}", "Host: localhost", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def request(path: str, body: bytes, *fields: str, method: str = "POST") -> bytes:
    """A whole request, with its length."""
    length = f"Content-Length: {len(body)}"
    return head(method, path, "Content-Type: application/json", length, *fields) + body


def completion(**fields: Any) -> bytes:
    """A whole request for a completion."""
    return request("/v1/completions", json.dumps({"prompt": "abc", **fields}).encode())


def response(sock: socket.socket, method: str = "POST") -> Response:
    """The next answer of a connection, to its end."""
    got = HTTPResponse(sock, method=method)
    got.begin()
    body = got.read()
    headers = {name.lower(): value for name, value in got.getheaders()}
    got.close()
    return Response(got.status, headers, body)


def exchange(served: Served, data: bytes, method: str = "POST") -> Response:
    """One request on a connection of its own."""
    with connect(served) as sock:
        sock.sendall(data)
        return response(sock, method)


def closed(sock: socket.socket) -> bool:
    """Read to the end of the connection; everything that comes before it is dropped."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return True
