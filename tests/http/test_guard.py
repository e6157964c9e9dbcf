"""Hosts that a page's own name must not pass for; keys; origins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from pagedd.server.http.guard import Guard

pytestmark = pytest.mark.anyio
Headers = Sequence[tuple[str, str]]


async def status(
    headers: Headers,
    *,
    path: str = "/v1/models",
    method: str = "GET",
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    keys: Sequence[bytes] = (),
) -> int:
    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    guard = Guard(PlainTextResponse("yes"), hosts=hosts, origins=origins, keys=lambda: keys)
    await guard(scope, receive, send)
    code: int = sent[0]["status"]
    return code


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8411",
        "localhost",
        "LOCALHOST:1",
        "a.localhost",
        "[::1]:8411",
        "[::1]",
        "10.0.0.7:1",
    ],
)
async def test_addresses_and_localhost_are_nobodys_names(host: str) -> None:
    assert await status([("host", host)]) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8411", "localhost.evil.example", "127.0.0.1.evil.example", ""],
)
async def test_another_name_is_refused_unless_it_is_allowed(host: str) -> None:
    assert await status([("host", host)]) == 403
    if host:
        assert await status([("host", host)], hosts=[host.partition(":")[0]]) == 200


async def test_one_of_two_hosts_is_enough_to_refuse() -> None:
    assert await status([("host", "localhost"), ("host", "evil.example")]) == 403


async def test_pages_are_refused_unless_they_are_allowed() -> None:
    page = [("host", "localhost"), ("origin", "https://page.example")]
    assert await status(page) == 403
    assert await status(page, origins=["https://other.example"]) == 403
    assert await status(page, origins=["https://page.example"]) == 200
    assert await status(page, origins=["*"]) == 200


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("Bearer one", 200),
        ("bearer  two", 200),
        ("Bearer three", 401),
        ("Bearer ", 401),
        ("Basic one", 401),
        ("one", 401),
        ("Bearer \u00e9", 401),
    ],
)
async def test_any_of_the_keys_opens(given: str, code: int) -> None:
    headers = [("authorization", given)]
    assert await status(headers, keys=[b"one", b"two"]) == code


async def test_no_key_and_two_headers_do_not() -> None:
    assert await status([], keys=[b"one"]) == 401
    twice = [("authorization", "Bearer one"), ("authorization", "Bearer one")]
    assert await status(twice, keys=[b"one"]) == 401


async def test_health_needs_no_key_and_a_preflight_has_none() -> None:
    assert await status([], path="/health", keys=[b"one"]) == 200
    ask = [("origin", "https://page.example"), ("access-control-request-method", "POST")]
    allowed = ["https://page.example"]
    assert await status(ask, method="OPTIONS", origins=allowed, keys=[b"one"]) == 200
    assert await status(ask, method="GET", origins=allowed, keys=[b"one"]) == 401
