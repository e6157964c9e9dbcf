"""``pagedd top --web``: the dashboard in a browser of this machine, through textual-serve.

textual-serve starts a dashboard for every page that is opened and asks nobody for a key. So a guard
stands before all it serves: only the loopback address is listened at; a request must name that
address, lest a web page with a name of its own that leads here reads along; pages from elsewhere
are refused; and there must be the key, which is new in every run.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import shlex
import socket
from collections.abc import Awaitable, Callable, Sequence
from http.cookies import CookieError, SimpleCookie
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pagedd.errors import AlreadyRunning, UsageError
from pagedd.interpreter import module_command
from pagedd_tui.app import Dashboard

if TYPE_CHECKING:
    from pagedd_tui.palette import Palette
    from pagedd_tui.source import Source

LOOPBACK = "127.0.0.1"
INSTALL = "pagedd top --web needs textual-serve: pip install 'pagedd[web]'"
INTERRUPTED = 130
_KEY_BYTES = 24

Headers = dict[str, str]
Handler = Callable[[Any], Awaitable[Any]]


class Gate:
    """Decides who may pass. Knows no library: ``judge`` gives a status and headers."""

    def __init__(self, port: int, key: str) -> None:
        self.address = f"{LOOPBACK}:{port}"
        self.cookie = f"pagedd_top_{port}"  # cookies do not tell ports apart, so their names do
        self._key = key
        self._session = secrets.token_urlsafe(_KEY_BYTES)

    @property
    def url(self) -> str:
        """What is to be opened."""
        return f"http://{self.address}/?key={self._key}"

    def judge(self, path: str, key: str | None, headers: Headers) -> tuple[int, Headers]:
        """200: let it pass; 302 and 4xx: answer so. ``headers`` of the request in lower case."""
        if headers.get("host") != self.address:
            return 403, {}
        if headers.get("origin", f"http://{self.address}") != f"http://{self.address}":
            return 403, {}
        if path == "/" and key is not None and _same(key, self._key):
            # the key goes out of the address at once, so that no history keeps it
            kept = f"{self.cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
            return 302, {"Location": "/", "Set-Cookie": kept, "Cache-Control": "no-store"}
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given, self._key):
            return 200, {}
        cookie = _cookie(headers.get("cookie", ""), self.cookie)
        return (200, {}) if _same(cookie, self._session) else (401, {})


def serve(arguments: Sequence[str], port: int, *, api_key: str | None) -> int:
    """Serve ``pagedd ARGUMENTS`` until interrupted. ``port`` 0: a free one.

    Raises UsageError where textual-serve is not installed, AlreadyRunning when the port is taken.
    """
    if find_spec("textual_serve") is None:
        raise UsageError(INSTALL)
    from aiohttp import web

    listener = _listen(port)
    gate = Gate(listener.getsockname()[1], secrets.token_urlsafe(_KEY_BYTES))
    if api_key is not None:
        # for the dashboards that textual-serve starts: others could read it on a command line
        os.environ["PAGEDD_API_KEY"] = api_key
    print(f"open {gate.url}\nfrom a browser of this machine; Ctrl-C ends it", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        web.run_app(application(arguments, gate), sock=listener, print=None, access_log=None)
    return INTERRUPTED


async def application(arguments: Sequence[str], gate: Gate) -> Any:
    """textual-serve's application behind the gate."""
    from aiohttp import web
    from textual_serve.server import Server

    async def guard(request: Any, handler: Handler) -> Any:
        given = {name.lower(): value for name, value in request.headers.items()}
        status, headers = gate.judge(request.path, request.query.get("key"), given)
        if status == 200:
            return await handler(request)
        text = "" if status == 302 else "open the address that pagedd top --web has printed\n"
        return web.Response(status=status, headers=headers, text=text)

    host, _, port = gate.address.partition(":")
    command = shlex.join([*module_command("pagedd.cli.main"), *arguments])
    server = Server(command, host=host, port=int(port), title="pagedd top")
    server.console.quiet = True  # it would greet, and print the command
    app = await server._make_app()
    app.middlewares.append(web.middleware(guard))
    return app


def run_session(
    source: Source,
    *,
    palette: Palette,
    readonly: bool,
    ring_minutes: float,
    map_hz: float,
    key_map: dict[str, str],
) -> int:
    """The dashboard of one page, in a process that textual-serve has started."""
    app = Dashboard(
        source,
        palette=palette,
        readonly=readonly,
        ring_minutes=ring_minutes,
        map_hz=map_hz,
        key_map=key_map,
    )
    app.run()
    return app.return_code or 0


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen()  # whoever opens the address at once waits
    except OSError as error:
        listener.close()
        text = f"cannot listen at {LOOPBACK}:{port}: {error.strerror}; try --web-port 0"
        raise AlreadyRunning(text) from error
    return listener


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())
