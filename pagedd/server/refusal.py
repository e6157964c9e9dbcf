"""What is wrong with JSON that a client sent, in one sentence that names field and limit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pagedd.protocol import INT32_MAX
from pagedd.server.items import passes

_MAX_SHOWN = 60  # characters of a refused value that an error message repeats
_MAX_MESSAGE = 300  # characters of a message that may repeat what the client wrote
_MAX_RESCUED = 1 << 20  # characters of malformed text that are read again to find out more
# JSON readers let nothing else run: this much is read in a third of a second. Every value but the
# last has a comma behind it, and an object or a list costs as much as several others. A prompt of
# so many commas and brackets is longer than what could be served.
_MAX_VALUES = 1_100_000
INLINE_BYTES = 64 * 1024  # are read in a millisecond or two, whatever they are
_COST_OF_OBJECT = 4
_PATH = re.compile(r" - at (`key` in )?`\$(?P<path>[^`]*)`$")
_PART = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `\$(?P<path>.*)`)?$")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*?)`(?: - at `\$(?P<path>.*)`)?$")


def shortened(message: str) -> str:
    """A message that may repeat what the client wrote."""
    return message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…"


def named(message: str, frame: Any) -> str:
    """ "Expected … - at `$.params.n`" → "params.n: expected …, got 0"."""
    for pattern, said in ((_UNKNOWN, "there is no such field"), (_MISSING, "must be given")):
        if (field := pattern.match(message)) is not None:
            inside = (field["path"] or "").lstrip(".")
            return f"{inside}{'.' if inside else ''}{field['name'][:_MAX_SHOWN]}: {said}"
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


def too_many_values(text: str) -> str | None:
    """Why JSON is not read at all, as a sentence."""
    if text.count(",") + _COST_OF_OBJECT * (text.count("{") + text.count("[")) <= _MAX_VALUES:
        return None
    return (
        f"its commas, and {_COST_OF_OBJECT} times its brackets, are more than {_MAX_VALUES}, which "
        "is the limit"
    )


def too_many_items(data: bytes) -> str | None:
    """The same for MessagePack, by a count of the values."""
    if not passes(data, _MAX_VALUES, _COST_OF_OBJECT):
        return None
    return (
        f"its values, objects and lists counted {_COST_OF_OBJECT} times, are more than "
        f"{_MAX_VALUES}, which is the limit"
    )


def takes_long(data: str | bytes, *, json: bool) -> bool:
    """Whether the event loop has no time to read it: it is long, and not one long text in JSON."""
    if len(data) <= INLINE_BYTES:
        return False
    if not json or len(data) > _MAX_RESCUED:
        return True
    text = data if isinstance(data, bytes) else data.encode(errors="replace")
    values = text.count(b",") + _COST_OF_OBJECT * (text.count(b"{") + text.count(b"["))
    return values > INLINE_BYTES // 8


def read_anything(data: str | bytes, decode: Callable[[str | bytes], Any]) -> Any:
    """What is of moderate size, to say more about it; None for what is not valid, or longer."""
    if len(data) > _MAX_RESCUED:
        return None
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_leniently(data: str | bytes) -> dict[str, Any]:
    """A frame of moderate size as Python's reader takes it; empty if that cannot read it either."""
    if isinstance(data, bytes) or len(data) > _MAX_RESCUED:
        return {}
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def repeated_key(text: str) -> str | None:
    """A key that comes twice in one object of valid JSON, as a sentence: readers differ in which
    one counts, so that whoever looks through a request on its way may see another one."""
    try:
        json.loads(text, object_pairs_hook=_each_once)
    except _Repeated as found:
        return f"{found.args[0][:_MAX_SHOWN]}: the key comes twice"
    return None


class _Repeated(Exception):
    """Its argument is the key."""


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Repeated(key)
        seen.add(key)


def without_form(frame: Any) -> str | None:
    """The first value that JSON cannot write, as a sentence."""
    try:
        return next(_formless(frame, ""), None)
    except RecursionError:
        return "the frame is nested too deeply"


def _formless(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: expected a finite number, got {value}"
    elif isinstance(value, str) and not _encodable(value):
        yield f"{path}: half of a surrogate pair is no character"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _formless(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not _encodable(key):
                yield f"{path or 'frame'}: key: half of a surrogate pair is no character"
            yield from _formless(item, f"{path}.{key[:_MAX_SHOWN]}" if path else key)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
