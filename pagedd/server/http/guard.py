"""Who may ask, before anything is asked: hosts, origins, keys. As ASGI middleware."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pagedd.errors import Forbidden, PageddError, Unauthorized
from pagedd.server.http.refuse import refuse
from pagedd.server.keys import refusal

OPEN_PATHS = ("/health",)  # for probes, which have no key


class Guard:
    """Refuses with 403 and 401; everything else goes on to ``app``.

    A web page can make a browser connect to a loopback port, under a name of the page's own (DNS
    rebinding): so ``Host`` must be an address, localhost, or a name in ``hosts``. ``origins``:
    pages that may connect; "*" are all. ``keys`` are asked for at each request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        origins: Collection[str],
        keys: Callable[[], Sequence[bytes]],
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        headers = Headers(scope=scope)
        try:
            self._check(headers, scope["path"], scope["method"])
        except Unauthorized as error:
            await refuse(error, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        except PageddError as error:
            await refuse(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, headers: Headers, path: str, method: str) -> None:
        for host in headers.getlist("host"):
            if not self._known_host(host):
                raise Forbidden("this host name is not allowed (--allow-host)")
        origins = set(headers.getlist("origin"))
        if "*" not in self._origins and not origins <= self._origins:
            raise Forbidden("this origin is not allowed (--allow-origin)")
        preflight = method == "OPTIONS" and "access-control-request-method" in headers
        if path in OPEN_PATHS or preflight:
            return
        wrong = refusal(headers.getlist("authorization"), self._keys())
        if wrong is not None:
            raise Unauthorized(wrong)

    def _known_host(self, host: str) -> bool:
        name = host.lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        name = name.removesuffix(".")
        if name == "localhost" or name.endswith(".localhost") or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
