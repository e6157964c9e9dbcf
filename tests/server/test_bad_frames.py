"""What is no frame of the protocol ends nothing but, at worst, its own connection."""

from __future__ import annotations

import json

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from tests.server.harness import Client, Daemon, until


def well(client: Client) -> None:
    """The connection and the engine go on."""
    frames = client.generate("well", prompt="ok", params={"max_tokens": 4})
    assert "".join(f["text"] for f in frames if f["type"] == "delta") == "okok"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "7",
        "[]",
        "[[]]",
        "{}",
        '{"type": "zap"}',
        '{"type": 5}',
        '{"type": "generate"}',
        '{"type": "cancel"}',
        '{"type": "cancel", "id": "a", "extra": 1}',
        '{"type": "status", "ref": 5}',
        '{"type": "subscribe", "topic": "weather"}',
        '{"type": "generate", "id": "a", "prompt": "x"',
        '{"type": "generate", "id": "a", "prompt": "\\ud800"}',
        '{"type": "generate", "id": "a", "prompt": "\\udc00x"}',
        "\ufeff{}",
        "[" * 20_000 + "]" * 20_000,
        '{"type": "generate", "id": "a", "x": ' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"type": "generate", "id": "a", "messages": ' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"x": ' * 20_000 + "1" + "}" * 20_000,
    ],
    ids=lambda text: text[:30],
)
def test_text_that_is_no_frame(daemon: Daemon, text: str) -> None:
    with daemon.client() as client:
        client.send_raw(text)
        error = client.receive()
        assert (error["type"], error["code"]) == ("error", "bad_request")
        assert len(error["message"]) < 300
        well(client)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 20_000 + b"\x90",
        b"\x81\xa1x" * 20_000 + b"\x01",
        msgspec.msgpack.encode({"type": "generate", "id": "a", "prompt": "x"})[:-1],
        b"\x83\xa4type\xa8generate\xa2id\xa1a\xa6prompt\xa3\xed\xa0\x80",
        b"\x83\xa4type\xa8generate\xa2id\xa1a\xa6prompt\xa1\xff",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_bytes_that_are_no_frame(daemon: Daemon, data: bytes) -> None:
    with daemon.client(json_frames=False) as client:
        client.send_raw(data)
        error = client.receive()
        assert (error["type"], error["code"]) == ("error", "bad_request")
        well(client)


@pytest.mark.parametrize("json_frames", [True, False])
def test_the_wrong_kind_of_frame(daemon: Daemon, json_frames: bool) -> None:
    frame = {"type": "generate", "id": "a", "prompt": "x"}
    with daemon.client(json_frames=json_frames) as client:
        client.send_raw(msgspec.json.encode(frame) if json_frames else json.dumps(frame))
        assert "this connection speaks" in client.receive()["message"]
        well(client)


@pytest.mark.parametrize(
    ("frame", "id"),
    [
        ('{"type": "generate", "id": "a", "id": "b", "prompt": "x"}', None),
        ('{"type": "generate", "id": "a", "prompt": "x", "prompt": "y"}', "a"),
        ('{"type": "generate", "id": "a", "prompt": "x", "params": {"n": 1, "n": 2}}', "a"),
        ('{"type": "status", "ref": "a", "ref": "b"}', None),
    ],
)
def test_a_key_that_comes_twice_is_refused(daemon: Daemon, frame: str, id: str | None) -> None:
    with daemon.client() as client:
        client.send_raw(frame)
        error = client.receive()
        assert (error["code"], error.get("id")) == ("bad_request", id)
        assert "twice" in error["message"]
        well(client)


def test_an_oversized_frame_ends_its_own_connection_only(daemon: Daemon) -> None:
    with daemon.client() as other, daemon.client() as client:
        frame = "x" * (16 * 1024 * 1024 + 1)
        with pytest.raises(ConnectionClosed) as closed:
            until(lambda: client.send_raw(frame), "the connection to be closed")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        well(other)


def test_invalid_utf8_breaks_the_transports_rules(daemon: Daemon) -> None:
    with daemon.client() as other, daemon.client() as client:
        client.socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as closed:
            client.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1007
        well(other)
