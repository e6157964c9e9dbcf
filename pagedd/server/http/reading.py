"""The body of a request: read within its limits, then one struct."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec
from starlette.requests import Request

from pagedd.errors import BadRequest, BodyTimeout, BodyTooLarge, UnsupportedMediaType
from pagedd.server.http.gateway import Gateway
from pagedd.server.intake import aside
from pagedd.server.refusal import (
    named,
    read_anything,
    read_leniently,
    repeated_key,
    shortened,
    takes_long,
    too_many_values,
    without_form,
)

BODY_TIMEOUT_S = 30.0
_TYPES = ("application/json", "application/x-www-form-urlencoded")  # the second by curl -d
T = TypeVar("T")
R = TypeVar("R")
_PART_TYPE = re.compile(r"content\[\d+\]\.type\b")
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


async def read(request: Request, kind: type[T], gateway: Gateway) -> T:
    """The body as a ``kind``. Raises PageddError, ClientDisconnect."""
    return await read_into(request, kind, gateway, lambda body: body)


async def read_into(request: Request, kind: type[T], gateway: Gateway, make: Callable[[T], R]) -> R:
    """What ``make`` makes of the body, in a time that follows its size: not in the event loop,
    where that is long. Raises PageddError, ClientDisconnect.
    """
    _check_type(request)
    data = await _body(request, gateway.body_limit)
    if not takes_long(data, json=True):
        return make(decode(data, kind))
    return await aside(gateway.hub, lambda: make(decode(data, kind)), "frame")


def decode(data: bytes, kind: type[T]) -> T:
    """JSON in UTF-8 as a ``kind``. Raises BadRequest that names the field and its limit."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    wrong = too_many_values(text)
    if wrong is not None:
        raise BadRequest(f"the body: {wrong}")
    try:
        decoded = _decoder(kind).decode(text)
        repeated = repeated_key(text)
    except msgspec.ValidationError as error:
        message = named(str(error), read_anything(text, msgspec.json.decode))
        if _PART_TYPE.search(message):
            message += " (parts of a content are text: no images, no sound)"
        raise BadRequest(shortened(message.replace("frame: ", "body: ", 1))) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        wrong = without_form(read_leniently(text))
        raise BadRequest(shortened(wrong or f"the body is not valid JSON: {error}")) from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if repeated is not None:
        raise BadRequest(repeated)
    return decoded


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


def _check_type(request: Request) -> None:
    given = request.headers.get("content-type")
    if given is not None and given.partition(";")[0].strip().lower() not in _TYPES:
        raise UnsupportedMediaType("the body must be application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("the body must not be compressed")


async def _body(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise BodyTooLarge(f"the body has {announced} bytes, the limit is {limit}")
    parts: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(BODY_TIMEOUT_S):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise BodyTooLarge(f"the body has more than {limit} bytes, which is the limit")
                parts.append(part)
    except TimeoutError:
        raise BodyTimeout(f"the body did not come within {BODY_TIMEOUT_S:g} s") from None
    return b"".join(parts)
