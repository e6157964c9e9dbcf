"""Bytes from a client → a frame of the protocol, or a refusal that names field and limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pagedd.errors import BadRequest
from pagedd.protocol import SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK, ClientFrame, Generate
from pagedd.server.refusal import (
    named,
    read_anything,
    read_leniently,
    repeated_key,
    shortened,
    too_many_items,
    too_many_values,
    without_form,
)

SUBPROTOCOLS = (SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK)


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
        wrong = too_many_values(data) if isinstance(data, str) else too_many_items(data)
        if wrong is not None:
            raise RefusedFrame(BadRequest(f"the frame: {wrong}"))
        try:
            frame: ClientFrame = self._frames.decode(data)
            repeated = repeated_key(data) if isinstance(data, str) else None
        except msgspec.ValidationError as error:
            raise self._refusal(data, str(error)) from None
        except (msgspec.DecodeError, UnicodeError) as error:
            raise _malformed(data, error) from None
        except RecursionError:
            raise RefusedFrame(BadRequest("the frame is nested too deeply")) from None
        if repeated is not None:
            whose = None if repeated.startswith("id: ") else getattr(frame, "id", None)
            raise _addressed(repeated, frame.__struct_config__.tag, whose, None)
        if isinstance(frame, Generate) and not frame.id.isprintable():
            raise RefusedFrame(BadRequest("id: only printable characters are allowed"))
        return frame

    def _wrong_opcode(self) -> str:
        if self.json:
            return f"this connection speaks {SUBPROTOCOL_JSON}: text frames, not binary ones"
        return f"this connection speaks {SUBPROTOCOL_MSGPACK}: binary frames, not text"

    def _refusal(self, data: str | bytes, message: str) -> RefusedFrame:
        """Find out whom a well-formed frame with a wrong field is about, and what is wrong."""
        text = named(message, read_anything(data, self._anything.decode))
        try:
            envelope = self._envelopes.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            frame = read_leniently(data)
            envelope = _Envelope(frame.get("type"), frame.get("id"), frame.get("ref"))
        return _addressed(text, envelope.type, envelope.id, envelope.ref)


def _addressed(message: str, type: Any, id: Any, ref: Any) -> RefusedFrame:
    error = BadRequest(shortened(message))
    if _usable(id):
        return RefusedFrame(error, id=id) if type == "generate" else RefusedFrame(error, ref=id)
    return RefusedFrame(error, ref=ref if _usable(ref) else None)


def _malformed(data: str | bytes, error: Exception) -> RefusedFrame:
    """JSON libraries write what JSON has no form for: NaN, infinities, half a surrogate pair.

    Such a frame still names its request, and whoever sent it waits for an answer to that.
    """
    if isinstance(data, bytes):
        return RefusedFrame(BadRequest(f"the frame is not valid MessagePack: {error}"))
    frame = read_leniently(data)
    wrong = without_form(frame)
    if wrong is None:
        return RefusedFrame(BadRequest(f"the frame is not valid JSON: {error}"))
    return _addressed(wrong, frame.get("type"), frame.get("id"), frame.get("ref"))


def _usable(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 128 and name.isprintable()
