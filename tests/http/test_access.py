"""Who may ask over HTTP: hosts, pages of browsers, keys, and how many at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.http.edges import Served
from tests.http.raw import completion, connect, exchange, head, response
from tests.server.harness import Daemon, until

Start = Callable[..., Daemon]
PAGE = "https://page.example"
OTHER = "https://other.example"
KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def guarded(start_for_module: Callable[..., Daemon]) -> Served:
    """With keys, a page that may ask, and a name of its own."""
    daemon = start_for_module(
        http="127.0.0.1:0", api_keys=KEYS, allow_origin=(PAGE,), allow_host=("box.lan",)
    )
    return Served.of(daemon)


def with_host(data: bytes, host: str) -> bytes:
    return data.replace(b"Host: localhost", b"Host: " + host.encode())


def with_field(data: bytes, *fields: str) -> bytes:
    lines = "".join(f"\r\n{field}" for field in fields).encode()
    return data.replace(b"Host: localhost", b"Host: localhost" + lines)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8411", True),
        ("LOCALHOST", True),
        ("box.lan:1", True),
        ("[::1]:8411", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_a_name_of_a_page_is_no_name_of_ours(guarded: Served, host: str, allowed: bool) -> None:
    got = exchange(guarded, with_host(head("GET", "/health"), host), "GET")
    assert got.status == (200 if allowed else 403)
    assert allowed or got.error["code"] == "forbidden"


@pytest.mark.parametrize("key", KEYS)
def test_every_key_opens(guarded: Served, key: str) -> None:
    data = with_field(completion(max_tokens=3), f"Authorization: Bearer {key}")
    assert exchange(guarded, data).status == 200


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["Authorization: Bearer "],
        ["Authorization: Bearer first-ke"],
        ["Authorization: Bearer first-key2"],
        ["Authorization: Basic first-key"],
        ["Authorization: first-key"],
        ["Authorization: Bearer first-key", "Authorization: Bearer second-key"],
        ["Authorization: Bearer \xff\xfe"],
        ["X-Api-Key: first-key"],
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/version", "/openapi.json", "/none"])
def test_nothing_but_health_without_a_key(guarded: Served, path: str, fields: list[str]) -> None:
    got = exchange(guarded, head("GET", path, *fields), "GET")
    assert (got.status, got.error["code"]) == (401, "unauthorized")
    assert got.headers["www-authenticate"] == "Bearer"
    assert exchange(guarded, head("GET", "/health", *fields), "GET").status == 200


def test_a_wrong_key_is_told_from_none(guarded: Served) -> None:
    none = exchange(guarded, head("GET", "/v1/models"), "GET").error["message"]
    wrong = head("GET", "/v1/models", "Authorization: Bearer not-this-one")
    other = exchange(guarded, wrong, "GET").error["message"]
    assert "is needed" in none
    assert "is not one of" in other
    assert "not-this-one" not in other


def test_a_page_that_may_ask(guarded: Served) -> None:
    asked = "Access-Control-Request-Method: POST"
    wanted = "Access-Control-Request-Headers: authorization, content-type"
    preflight = head("OPTIONS", "/v1/completions", f"Origin: {PAGE}", asked, wanted)
    got = exchange(guarded, preflight)
    assert got.status == 200
    assert got.headers["access-control-allow-origin"] == PAGE
    assert "authorization" in got.headers["access-control-allow-headers"].lower()
    key = f"Authorization: Bearer {KEYS[0]}"
    for stream in (False, True):
        data = completion(max_tokens=3, stream=stream)
        got = exchange(guarded, with_field(data, f"Origin: {PAGE}", key))
        assert (got.status, got.headers["access-control-allow-origin"]) == (200, PAGE)


def test_a_page_that_may_not_ask(guarded: Served) -> None:
    asked = "Access-Control-Request-Method: POST"
    key = f"Authorization: Bearer {KEYS[0]}"
    for origin in (OTHER, "null", PAGE + ".evil.example", "http://page.example"):
        for data in (
            head("OPTIONS", "/v1/completions", f"Origin: {origin}", asked),
            head("GET", "/health", f"Origin: {origin}"),
            with_field(completion(), f"Origin: {origin}", key),
        ):
            got = exchange(guarded, data)
            assert got.status == 403
            assert "access-control-allow-origin" not in got.headers


def test_no_page_may_ask_unless_it_is_named(start: Start) -> None:
    served = Served.of(start())
    got = exchange(served, head("GET", "/health", "Origin: http://localhost:3000"), "GET")
    assert got.status == 403
    plain = exchange(served, head("GET", "/health"), "GET")
    assert not [name for name in plain.headers if name.startswith("access-control")]


def test_more_connections_than_may_be_open(start: Start) -> None:
    daemon = start(max_connections=3)
    served = Served.of(daemon)
    with ExitStack() as stack:
        kept = [stack.enter_context(connect(served)) for _ in range(3)]
        kept[0].sendall(completion(max_tokens=200, stream=True))
        until(lambda: daemon.status()["connections"] == 4, "all to be open")
        with connect(served) as refused:
            got = response(refused)
        assert (got.status, got.error["code"]) == (503, "too_many_connections")
        assert response(kept[0]).body.endswith(b"data: [DONE]\n\n")
        kept[1].sendall(head("GET", "/health"))
        assert json.loads(response(kept[1], "GET").body) == {"status": "ready"}
        kept[2].close()
        until(lambda: daemon.status()["connections"] == 3, "one to be closed")
        assert exchange(served, completion(max_tokens=3)).status == 200
    assert daemon.stop()[0] == 0
