"""Who answers at an ``http://`` address: the model it serves, and how long a sequence may be."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pagedd.bench.sse import message_of
from pagedd.errors import PageddError, Unauthorized, Unreachable, UsageError

TIMEOUT_S = 10.0
PORT = 80


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and what it says of itself; None and ``""``: it does not say."""

    url: str
    host: str
    port: int
    path: str  # what stands before /v1
    api_key: str | None
    model: str | None = None
    owner: str = ""
    vocab_size: int | None = None
    max_model_len: int | None = None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Those of every request."""
        found = [("host", f"{self.host}:{self.port}"), ("user-agent", "pagedd-bench")]
        if self.api_key:
            found.append(("authorization", f"Bearer {self.api_key}"))
        return found

    def unreachable(self, error: OSError) -> Unreachable:
        """The error of a connection that could not be made."""
        return Unreachable(f"no server at {self.url}: {error.strerror or error}")


def is_http(url: str | None) -> bool:
    """Whether this is the address of such a server, and not of a daemon."""
    return url is not None and url.startswith(("http://", "https://"))


def find_server(url: str, api_key: str | None = None) -> Server:
    """Ask the server at ``url`` what it serves; of several models it is the first.

    Errors: ``UsageError`` for what is no address, ``Unreachable``, ``Unauthorized``, and
    ``PageddError`` when something else answers there.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise UsageError(f"{url!r} is no address: {error}") from error
    if parts.scheme != "http" or not host:
        raise UsageError(f"{url!r} is no address of a server to measure: http://HOST:PORT")
    path = parts.path.rstrip("/").removesuffix("/v1")
    server = Server(f"http://{parts.netloc}{path}", host, port, path, api_key)
    listed = _get(server, "/v1/models")
    models = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        return server
    first = models[0]
    meta = first.get("meta")
    if not isinstance(meta, dict):
        meta = {}
    return replace(
        server,
        model=first.get("id"),
        owner=str(first.get("owned_by") or ""),
        vocab_size=meta.get("n_vocab"),
        max_model_len=first.get("max_model_len") or meta.get("n_ctx") or meta.get("n_ctx_train"),
    )


def _get(server: Server, path: str) -> Any:
    """The JSON at ``path``; None where the server has no such page."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", server.path + path, headers=dict(server.headers))
        response = connection.getresponse()
        data = response.read()
    except TimeoutError as error:
        raise Unreachable(f"the server at {server.url} does not answer") from error
    except OSError as error:
        raise server.unreachable(error) from error
    except http.client.HTTPException as error:
        raise PageddError(f"what answers at {server.url} speaks no HTTP: {error!r}") from error
    finally:
        connection.close()
    if response.status == 401:
        raise Unauthorized(f"the server at {server.url} wants a key, or another one: --api-key")
    if response.status == 503:
        said = message_of(data.decode(errors="replace"))[:200]
        raise Unreachable(f"the server at {server.url} is not ready (HTTP 503): {said}")
    if response.status != 200:
        return None
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise PageddError(f"{server.url}{path} is no JSON: {error}") from error
