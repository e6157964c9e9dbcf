"""MessagePack is counted before it is read: nested values cost many times what they weigh."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import pytest

from pagedd.protocol import SUBPROTOCOL_MSGPACK, Generate
from pagedd.server.decode import Codec, RefusedFrame
from pagedd.server.items import passes
from tests.server.harness import Daemon

COST = 4
MIB = 1 << 20


def anything(rng: random.Random, depth: int = 0) -> Any:
    """Values of every form that the format has for them."""
    kind = rng.randrange(9 if depth < 5 else 6)
    if kind == 0:
        return rng.choice([None, True, False, 0, 127, -1, -32, -33, 128, 255, 256, 65535, 65536])
    if kind == 1:
        return rng.randrange(-(2**63), 2**64)
    if kind == 2:
        return rng.random()
    if kind == 3:
        return "é" * rng.choice([0, 1, 2, 4, 5, 15, 16, 100, 200, 40_000])
    if kind == 4:
        return b"\x90" * rng.choice([0, 1, 255, 256, 70_000])
    if kind == 5:
        return msgspec.msgpack.Ext(5, b"\x80" * rng.choice([1, 2, 4, 8, 16, 3, 300, 70_000]))
    count = rng.choice([0, 1, 2, 15, 16]) if depth else 70_000 if rng.random() < 0.1 else 20
    if kind == 6:
        return {n: anything(rng, depth + 3) for n in range(count)}
    return [anything(rng, depth + 3) for _ in range(count)]


def counted(value: Any) -> int:
    if isinstance(value, dict):
        return COST + sum(counted(key) + counted(each) for key, each in value.items())
    return COST + sum(map(counted, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("seed", range(40))
def test_the_count_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    value = [anything(rng) for _ in range(10)]
    data, count = msgspec.msgpack.encode(value), counted(value)
    assert passes(data, count - 1, COST)
    assert not passes(data, count, COST)


@pytest.mark.parametrize("data", [b"\xdb\xff\xff", b"\xc1" * 9, b"\xc7", b"\xd9\x09a", b"\xcd\x01"])
def test_what_is_cut_short_is_counted_all_the_same(data: bytes) -> None:
    assert passes(b"\x90" * 9 + data, 30, COST)
    assert not passes(b"\x90" * 9 + data, 45, COST)


def listed(item: bytes, size: int) -> bytes:
    count = size // len(item)
    return b"\xdd" + struct.pack(">I", count) + item * count


def framed(field: str, value: bytes) -> bytes:
    """A request in which ``field`` of the parameters is an object that holds ``value``."""
    pack = msgspec.msgpack.encode
    head = b"\x84" + b"".join(map(pack, ("type", "generate", "id", "a", "prompt", "x", "params")))
    return head + b"\x81" + pack(field) + b"\x81" + pack("x") + value


@pytest.mark.parametrize(
    "item", [b"\x90", b"\x80", b"\x91\x90", b"\x91" * 400 + b"\x90", b"\x81\xa1a\x01", b"\x01"]
)
def test_a_frame_of_too_many_values_is_not_read(item: bytes) -> None:
    with pytest.raises(RefusedFrame, match="the frame: its values, objects and lists counted"):
        Codec(SUBPROTOCOL_MSGPACK).decode(framed("guided_json", listed(item, 15 * MIB)))


def test_what_is_long_and_plain_is_read() -> None:
    """A text whose bytes look like lists, and more ids than any model takes."""
    codec = Codec(SUBPROTOCOL_MSGPACK)
    text = "\u0410" * (4 * MIB)  # its second byte alone would be an empty list
    frame = codec.decode(msgspec.msgpack.encode({"type": "generate", "id": "a", "prompt": text}))
    assert isinstance(frame, Generate)
    assert frame.prompt == text
    ids = list(range(1_000_000))
    frame = codec.decode(
        msgspec.msgpack.encode({"type": "generate", "id": "a", "prompt_tokens": ids})
    )
    assert isinstance(frame, Generate)
    assert frame.prompt_tokens == ids


def test_the_daemon_goes_on(daemon: Daemon) -> None:
    with daemon.client(json_frames=False) as client:
        client.send_raw(framed("guided_json", listed(b"\x90", 15 * MIB)))
        error = client.until("error")
        assert error["code"] == "bad_request"
        assert "limit" in error["message"]
        done = client.generate("b", prompt="abc", params={"max_tokens": 3})[-1]
        assert done["type"] == "done"
