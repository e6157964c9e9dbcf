"""Hostile, broken and enormous requests (case B40), and connections that break off in one."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.http.edges import Served, ask, post
from tests.http.raw import (
    Response,
    closed,
    completion,
    connect,
    exchange,
    head,
    request,
    response,
)
from tests.server.harness import Daemon, until

MIB = 1 << 20
COMPLETIONS = "/v1/completions"
POSTS = (COMPLETIONS, "/v1/chat/completions", "/tokenize", "/detokenize")
DEEP = "[" * 20_000 + "]" * 20_000


@pytest.fixture(autouse=True)
def _well(daemon: Daemon, served: Served) -> Iterator[None]:
    """The same processes before and after, which answer as ever."""
    before = daemon.status()["engine_pid"]
    yield
    assert ask("http", served, "ok", max_tokens=4).text == "okok"
    after = daemon.until_quiet()
    assert after["engine_pid"] == before


def refused(got: Response, *statuses: int) -> dict[str, Any]:
    assert got.status in statuses, got
    assert len(got.error["message"]) < 400
    return got.error


BROKEN = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"7",
    b'"x"',
    b"{}",
    DEEP.encode(),
    b'{"prompt": "x", "unknown": ' + DEEP.encode() + b"}",
    b'{"prompt": ' + DEEP.encode() + b"}",
    b'{"a": ' * 20_000 + b"1" + b"}" * 20_000,
    b'{"prompt": "\xff\xfe"}',
    b'{"prompt": "x\xc0\xaf"}',
    b'{"prompt": "\xed\xa0\x80"}',
    '{"prompt": "x"}'.encode("utf-16"),
    '{"prompt": "x"}'.encode("utf-16-le"),
    '{"prompt": "x"}'.encode("utf-32"),
    b'\xef\xbb\xbf{"prompt": "x"}',
    '{"prompt": "你好"}'.encode("gbk"),
    b'{"prompt": "x"',
    b'{"prompt": "x',
    b'{"prompt": "x"} {}',
    b"{'prompt': 'x'}",
    b'{"prompt": "x", "prompt": "y"}',
    b'{"prompt": "x", "stream_options": {"include_usage": true, "include_usage": false}}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": "\\udc00\\ud800"}',
    b'{"\\ud800": 1, "prompt": "x"}',
    b'{"prompt": "x", "stop": "\\ud83d"}',
    b"\0" * 100,
    b"\x1f\x8b\x08\0\0\0\0\0",
    b"----------\r\nContent-Disposition: form-data\r\n\r\nx",
]


@pytest.mark.parametrize("path", POSTS)
def test_b40_a_body_that_is_none(served: Served, path: str) -> None:
    for body in BROKEN:
        error = refused(exchange(served, request(path, body)), 400)
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("deep", [DEEP, f'{{"type":"generate","id":"a","zzz":{DEEP}}}'])
def test_b40_deep_frames(daemon: Daemon, deep: str) -> None:
    with daemon.client() as client:
        client.send_raw(deep)
        assert client.receive()["code"] == "bad_request"
        client.send_raw(b"\0\1\2")
        assert "text frames" in client.receive()["message"]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("chunked", [False, True])
def test_b40_an_enormous_body_is_refused_without_being_kept(
    daemon: Daemon, served: Served, path: str, chunked: bool
) -> None:
    process = psutil.Process(daemon.process.pid)
    before = process.memory_info().rss
    length = 100 * MIB
    size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
    with connect(served) as sock:
        sock.sendall(head("POST", path, "Content-Type: application/json", size))
        if chunked:
            piece = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
        else:
            # refused by what the head says
            assert refused(response(sock), 413)["code"] == "body_too_large"
            piece = b" " * MIB
        for _ in range(length // MIB):
            sock.sendall(piece)
        if chunked:
            sock.sendall(b"0\r\n\r\n")
            assert refused(response(sock), 413)["code"] == "body_too_large"
        sock.sendall(head("GET", "/health"))
        assert response(sock, "GET").status == 200, "the connection goes on"
    # the announced limit is 16 MiB; what grows a buffer copies it
    assert process.memory_info().rss - before < 64 * MIB


def test_b40_a_client_that_may_not_send_is_told_before_it_does(served: Served) -> None:
    fields = (f"Content-Length: {100 * MIB}", "Expect: 100-continue")
    refused(exchange(served, head("POST", COMPLETIONS, *fields)), 413)
    body = json.dumps({"prompt": "abc", "max_tokens": 2}).encode()
    with connect(served) as sock:
        sock.sendall(head("POST", COMPLETIONS, f"Content-Length: {len(body)}", fields[1]))
        assert sock.recv(4096).startswith(b"HTTP/1.1 100 ")
        sock.sendall(body)
        assert response(sock).status == 200


def test_b40_a_body_at_the_limit_is_read(served: Served) -> None:
    body = b'{"prompt": "abc", "max_tokens": 4}'.ljust(16 * MIB)
    assert exchange(served, request(COMPLETIONS, body)).status == 200
    refused(exchange(served, request(COMPLETIONS, body + b" ")), 413)


@pytest.mark.parametrize(
    ("fields", "body", "status"),
    [
        (["Content-Length: 3", "Content-Length: 4"], b"{}  ", 400),
        (["Content-Length: -1"], b"", 400),
        (["Content-Length: x"], b"", 400),
        (["Content-Length: 1" + "0" * 18], b"{}", 413),
        (["Transfer-Encoding: gzip"], b"0\r\n\r\n", 400),
        (["Transfer-Encoding: chunked"], b"zz\r\n\r\n", 400),
        (["Transfer-Encoding: chunked", "Content-Length: 3"], b"0\r\n\r\n", 400),
        (["Content-Length: 2", "Content-Type: text/plain"], b"{}", 415),
        (["Content-Length: 2", "Content-Type: application/xml"], b"{}", 415),
        (["Content-Length: 2", "Content-Encoding: gzip"], b"{}", 415),
        (["Content-Length: 2", "X-Request-Id: a\0b"], b"{}", 400),
        (["Content-Length: 2", "X: " + "a" * 300_000], b"{}", 400),
        ([], b"", 400),
    ],
    ids=str,
)
def test_b40_heads_that_lie(served: Served, fields: list[str], body: bytes, status: int) -> None:
    refused(exchange(served, head("POST", COMPLETIONS, *fields) + body), status)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
        b"GET\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n"[:40] + b"\0\r\n\r\n",
        b"\r\n" * 100 + b"x\r\n\r\n",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_b40_what_is_no_http(served: Served, data: bytes) -> None:
    with connect(served) as sock:
        sock.sendall(data)
        refused(response(sock, "GET"), 400)
        assert closed(sock)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("POST", "/v1/completions/", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%00%ff%0a", 404),
        ("GET", "/" + "x" * 5000, 404),
        ("GET", "http://localhost/health", 404),
        ("GET", COMPLETIONS, 405),
        ("PUT", COMPLETIONS, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("OPTIONS", "/health", 405),
        ("TRACE", "/health", 405),
        ("BREW", "/health", 405),
        ("CONNECT", "localhost:1", 404),
    ],
)
def test_b40_wrong_paths_and_methods(served: Served, method: str, path: str, status: int) -> None:
    got = exchange(served, head(method, path))
    refused(got, status)
    assert status != 405 or got.headers["allow"]


def test_b40_head_and_an_older_http(served: Served) -> None:
    got = exchange(served, head("HEAD", "/health"), "HEAD")
    assert (got.status, got.body) == (200, b"")
    older = exchange(served, head("GET", "/health", version="HTTP/1.0"), "GET")
    assert json.loads(older.body) == {"status": "ready"}
    body = json.dumps({"prompt": "abc", "stream": True, "max_tokens": 2}).encode()
    fields = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    with connect(served) as sock:
        sock.sendall(head("POST", COMPLETIONS, *fields, version="HTTP/1.0") + body)
        streamed = response(sock)
        assert streamed.headers["connection"] == "close"
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        assert closed(sock)


def test_b40_pipelined_requests_are_answered_in_order(served: Served) -> None:
    with connect(served) as sock:
        sock.sendall(b"".join(completion(max_tokens=count) for count in (1, 2, 3)))
        texts = [json.loads(response(sock).body)["choices"][0]["text"] for _ in range(3)]
    assert texts == ["a", "ab", "abc"]


@pytest.mark.parametrize("part", [b"", b'{"prompt": "abc", ', b'{"prompt": "abc"'])
def test_b40_bodies_that_end_before_their_length(served: Served, part: bytes) -> None:
    fields = ("Content-Type: application/json", "Content-Length: 1000")
    for half in (socket.SHUT_WR, socket.SHUT_RDWR):
        with connect(served) as sock:
            sock.sendall(head("POST", COMPLETIONS, *fields) + part)
            sock.shutdown(half)
            assert closed(sock)


def test_b40_others_are_not_disturbed(daemon: Daemon, served: Served) -> None:
    """A hundred bad requests while a stream goes on; no file stays open."""
    process = psutil.Process(daemon.process.pid)
    until(lambda: daemon.status()["connections"] == 1, "the other connections to end")
    files = process.num_fds()
    with connect(served) as stream:
        stream.sendall(completion(max_tokens=250, stream=True))
        for at in range(100):
            body = BROKEN[at % len(BROKEN)] + os.urandom(at)
            assert post(served.http + POSTS[at % 4], body).status_code == 400
        got = response(stream)
    assert got.body.endswith(b"data: [DONE]\n\n")
    until(lambda: process.num_fds() <= files, "the files to be closed")
