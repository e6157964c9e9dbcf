"""The routes, and what stands in front of each of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pagedd.errors import PageddError
from pagedd.server.http import plain
from pagedd.server.http.answers import ErrorAnswer, ErrorBody
from pagedd.server.http.chat import chat
from pagedd.server.http.completions import complete
from pagedd.server.http.gateway import Gateway
from pagedd.server.http.guard import Guard
from pagedd.server.http.job import ClientGone
from pagedd.server.http.openapi import document
from pagedd.server.http.refuse import json_response, refuse
from pagedd.server.metrics_http import Counted

logger = logging.getLogger(__name__)

Endpoint = Callable[[Gateway, Request], Awaitable[Response | ASGIApp]]
_ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("POST", "/v1/chat/completions", chat),
    ("POST", "/v1/completions", complete),
    ("GET", "/v1/models", plain.models),
    ("GET", "/v1/models/{name:path}", plain.model),
    ("POST", "/tokenize", plain.tokenize),
    ("POST", "/detokenize", plain.detokenize),
    ("GET", "/health", plain.health),
    ("GET", "/version", plain.server_version),
    ("GET", "/metrics", plain.metrics),
    ("GET", "/openapi.json", document),
)
_GONE = 499  # as proxies log it; nobody reads it


def make_app(
    gateway: Gateway,
    *,
    keys: Callable[[], Sequence[bytes]],
    origins: Sequence[str],
    hosts: Sequence[str],
) -> Starlette:
    """The ASGI application. ``keys``: those that count now."""
    meter = gateway.hub.metrics.http
    meter.paths = frozenset(path for _, path, _ in _ROUTES)
    guards = [
        Middleware(Counted, meter=meter, clock=time.monotonic),
        Middleware(Guard, hosts=hosts, origins=origins, keys=keys),
    ]
    if origins:
        guards.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(origins),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["Retry-After"],
            )
        )
    app = Starlette(
        routes=[
            Route(path, partial(_answer, gateway, endpoint), methods=[method])
            for method, path, endpoint in _ROUTES
        ],
        middleware=guards,
        exception_handlers={HTTPException: _refuse_http},
    )
    app.router.redirect_slashes = False  # clients of an API want to be told, not sent elsewhere
    return app


async def _answer(gateway: Gateway, endpoint: Endpoint, request: Request) -> Response | ASGIApp:
    try:
        return await endpoint(gateway, request)
    except PageddError as error:
        return refuse(error)
    except (ClientGone, ClientDisconnect):
        return Response(status_code=_GONE)
    except Exception as error:  # here, so that the connection goes on
        logger.exception("%s %s failed", request.method, request.url.path, exc_info=error)
        return refuse(PageddError("the daemon failed at this request; its log says why"))


async def _refuse_http(request: Request, error: Exception) -> Response:
    """No such path, or another method."""
    assert isinstance(error, HTTPException)
    path = f"{request.method} {request.url.path}"
    message = f"{error.detail}: {path[:100]}"
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    body = ErrorAnswer(ErrorBody(message, "invalid_request_error", None, code))
    return json_response(body, error.status_code, error.headers)
