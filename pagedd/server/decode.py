"""Bytes from a client → a frame of the protocol, or a refusal that names field and limit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pagedd.errors import BadRequest
from pagedd.protocol import INT32_MAX, SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK, ClientFrame, Generate

SUBPROTOCOLS = (SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK)
_MAX_SHOWN = 60  # characters of a refused value that an error message repeats
_MAX_MESSAGE = 300  # characters of a message that may repeat what the client wrote
_MAX_RESCUED = 1 << 20  # characters of a malformed frame that are read again to find its id
_PATH = re.compile(r" - at (`key` in )?`\$(?P<path>[^`]*)`$")
_PART = re.compile(r"\.(\w+)|\[(\d+)\]")


class _Envelope(msgspec.Struct):
    type: Any = None
    id: Any = None
    ref: Any = None


class RefusedFrame(Exception):
    """A frame that is no frame of the protocol.

    ``id``: it names a request of its own, which this refusal ends. ``ref``: it names another.
    """

    def __init__(self, error: BadRequest, *, id: str | None = None, ref: str | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.id = id
        self.ref = ref


class Codec:
    """Both directions of one subprotocol: JSON in text frames, MessagePack in binary ones."""

    def __init__(self, subprotocol: str) -> None:
        self.json = subprotocol != SUBPROTOCOL_MSGPACK
        module = msgspec.json if self.json else msgspec.msgpack
        self._frames = module.Decoder(ClientFrame)
        self._envelopes = module.Decoder(_Envelope)
        self._anything = module.Decoder()
        self._encode: Callable[[msgspec.Struct], bytes] = module.Encoder().encode

    def encode(self, frame: msgspec.Struct) -> bytes:
        """The bytes of one websocket message."""
        return self._encode(frame)

    def decode(self, data: str | bytes) -> ClientFrame:
        """One websocket message → one frame. Raises RefusedFrame."""
        if isinstance(data, str) != self.json:
            raise RefusedFrame(BadRequest(self._wrong_opcode()))
        try:
            frame: ClientFrame = self._frames.decode(data)
        except msgspec.ValidationError as error:
            raise self._refusal(data, str(error)) from None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise _malformed(data, error) from None
        except RecursionError:
            raise RefusedFrame(BadRequest("the frame is nested too deeply")) from None
        if isinstance(frame, Generate) and not frame.id.isprintable():
            raise RefusedFrame(BadRequest("id: only printable characters are allowed"))
        return frame

    def _wrong_opcode(self) -> str:
        if self.json:
            return f"this connection speaks {SUBPROTOCOL_JSON}: text frames, not binary ones"
        return f"this connection speaks {SUBPROTOCOL_MSGPACK}: binary frames, not text"

    def _refusal(self, data: str | bytes, message: str) -> RefusedFrame:
        """Find out whom a well-formed frame with a wrong field is about, and what is wrong."""
        try:
            anything = self._anything.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            anything = None
        text = _named(message, anything)
        try:
            envelope = self._envelopes.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            frame = _read_leniently(data)
            envelope = _Envelope(frame.get("type"), frame.get("id"), frame.get("ref"))
        return _addressed(text, envelope.type, envelope.id, envelope.ref)


def _addressed(message: str, type: Any, id: Any, ref: Any) -> RefusedFrame:
    if len(message) > _MAX_MESSAGE:
        message = message[:_MAX_MESSAGE] + "…"
    error = BadRequest(message)
    if _usable(id):
        return RefusedFrame(error, id=id) if type == "generate" else RefusedFrame(error, ref=id)
    return RefusedFrame(error, ref=ref if _usable(ref) else None)


def _malformed(data: str | bytes, error: Exception) -> RefusedFrame:
    """JSON libraries write what JSON has no form for: NaN, infinities, half a surrogate pair.

    Such a frame still names its request, and whoever sent it waits for an answer to that.
    """
    if isinstance(data, bytes):
        return RefusedFrame(BadRequest(f"the frame is not valid MessagePack: {error}"))
    frame = _read_leniently(data)
    try:
        wrong = next(_without_form(frame, ""), None)
    except RecursionError:
        wrong = "the frame is nested too deeply"
    if wrong is None:
        return RefusedFrame(BadRequest(f"the frame is not valid JSON: {error}"))
    return _addressed(wrong, frame.get("type"), frame.get("id"), frame.get("ref"))


def _read_leniently(data: str | bytes) -> dict[str, Any]:
    """A frame of moderate size as Python's reader takes it; empty if that cannot read it either."""
    if isinstance(data, bytes) or len(data) > _MAX_RESCUED:
        return {}
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def _without_form(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: expected a finite number, got {value}"
    elif isinstance(value, str) and not _encodable(value):
        yield f"{path}: half of a surrogate pair is no character"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _without_form(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not _encodable(key):
                yield f"{path or 'frame'}: key: half of a surrogate pair is no character"
            yield from _without_form(item, f"{path}.{key[:_MAX_SHOWN]}" if path else key)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _usable(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 128 and name.isprintable()


def _named(message: str, frame: Any) -> str:
    """ "Expected … - at `$.params.n`" → "params.n: expected …, got 0"."""
    found = _PATH.search(message)
    if found is None:
        return message[0].lower() + message[1:]
    path: str = found["path"]
    said = message[: found.start()]
    key = found[1] is not None
    text = f"{path.lstrip('.') or 'frame'}: {'key ' if key else ''}{said[0].lower()}{said[1:]}"
    if ", got" in said or said.startswith(("Object", "Invalid")):
        return text + _bad_keys(frame, path) if key else text
    return text + (_bad_keys(frame, path) if key else _value(frame, path))


def _at(frame: Any, path: str) -> Any:
    for name, index in _PART.findall(path):
        frame = frame[name] if name else frame[int(index)]
    return frame


def _value(frame: Any, path: str) -> str:
    try:
        value = _at(frame, path)
    except (KeyError, IndexError, TypeError, ValueError):
        return ""
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN * 3:
        return f", got an integer of {value.bit_length()} bits"
    if isinstance(value, (int, float)):
        return f", got {value}"
    if isinstance(value, (str, list)):
        return f", got length {len(value)}"
    return ""


def _bad_keys(frame: Any, path: str) -> str:
    """The first key that is no token id."""
    try:
        keys = list(_at(frame, path))
    except (KeyError, IndexError, TypeError, ValueError):
        return ""
    for key in keys:
        shown = str(key)[:_MAX_SHOWN]
        if not (shown.isascii() and shown.isdecimal()) or int(shown) > INT32_MAX:
            return f", got {shown!r}"
    return ""
