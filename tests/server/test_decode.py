"""A frame that JSON has no form for is refused under the id that its sender waits for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pagedd.protocol import SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK
from pagedd.server.decode import Codec, RefusedFrame


def refused(data: str | bytes) -> RefusedFrame:
    codec = Codec(SUBPROTOCOL_JSON if isinstance(data, str) else SUBPROTOCOL_MSGPACK)
    with pytest.raises(RefusedFrame) as caught:
        codec.decode(data)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"params": {"temperature": float("nan")}}, "params.temperature: expected a finite number"),
        ({"params": {"top_p": float("inf")}}, "params.top_p: expected a finite number, got inf"),
        ({"params": {"min_p": -float("inf")}}, "params.min_p: expected a finite number, got -inf"),
        ({"params": {"logit_bias": {"7": float("nan")}}}, "params.logit_bias.7: expected a finite"),
        ({"params": {"stop": ["a", "\ud800"]}}, "params.stop[1]: half of a surrogate pair"),
        ({"prompt": "a\udc00b"}, "prompt: half of a surrogate pair"),
        ({"prompt": "\ud83d"}, "prompt: half of a surrogate pair"),
        ({"messages": [{"role": "user", "content": "\ud83d"}]}, "messages[0].content: half of a"),
        ({"\ud800": 1}, "frame: key: half of a surrogate pair"),
    ],
)
def test_what_json_libraries_write_and_json_has_no_form_for(
    fields: dict[str, Any], message: str
) -> None:
    found = refused(json.dumps({"type": "generate", "id": "r1", "prompt": "x", **fields}))
    assert found.error.message.startswith(message)
    assert (found.id, found.ref) == ("r1", None)


def test_a_number_that_no_float_holds() -> None:
    found = refused('{"type":"generate","id":"r1","prompt":"x","params":{"temperature":1e400}}')
    assert found.error.message == "params.temperature: number out of range"
    assert found.id == "r1"


def test_the_frame_may_refer_to_a_request_or_to_itself() -> None:
    assert refused('{"type":"reprioritize","id":"r1","priority":NaN}').ref == "r1"
    assert refused('{"type":"status","ref":"s1","x":Infinity}').ref == "s1"
    nobody = refused('{"type":"generate","id":"\\ud800","prompt":"x"}')
    assert (nobody.id, nobody.ref) == (None, None)
    assert nobody.error.message == "id: half of a surrogate pair is no character"


def test_deep_nesting_before_it_is_no_fault_of_the_decoder() -> None:
    """Neither reader is as patient as the other: no depth may raise anything else."""
    for depth in (100, 900, 960, 980, 990, 1000, 1100, 5000):
        nested = "[" * depth + "NaN" + "]" * depth
        frame = '{"type":"generate","id":"r1","prompt":NaN,"x":' + nested + "}"
        assert refused(frame).error.code == "bad_request"
        assert refused('{"type":"generate","x":' + nested + "}").error.code == "bad_request"
        assert refused('{"params":' + nested + ',"type":"generate"}').error.code == "bad_request"


@pytest.mark.parametrize("text", ['{"type":"generate","id":"r1","prompt":"x"', "NaN", "{"])
def test_what_is_no_object_is_about_nobody(text: str) -> None:
    found = refused(text)
    assert (found.id, found.ref) == (None, None)
    assert "JSON" in found.error.message


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "x" * 100_000},
        {"type": "status", "k" * 100_000: 1},
        {"type": "generate", "id": "r1", "prompt": "x", "params": {"k" * 100_000: 1}},
    ],
)
def test_a_message_repeats_little_of_what_it_refuses(frame: dict[str, Any]) -> None:
    for data in (json.dumps(frame), msgspec.msgpack.encode(frame)):
        assert len(refused(data).error.message) <= 301
    long = json.dumps({**frame, "y": float("nan")})
    assert len(refused(long).error.message) <= 301


def test_a_key_that_is_no_text_is_the_frames_fault() -> None:
    assert refused(b"\x81\x01\x02").error.message.startswith("frame: key expected `str`")
