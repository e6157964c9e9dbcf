"""How many values MessagePack holds, counted without making any of them."""

from __future__ import annotations

import re

# Runs of values of one size, so that what is long and plain costs next to nothing to count; what is
# counted in Python lets others run meanwhile, unlike the reader itself.
_RUNS: tuple[tuple[int, bytes], ...] = (
    (1, rb"[\x00-\x7f\xa0\xc0\xc2\xc3\xe0-\xff]"),  # small numbers, "", nil, booleans
    (2, rb"[\xcc\xd0\xa1]."),
    (3, rb"[\xcd\xd1\xa2].{2}"),
    (5, rb"[\xca\xce\xd2\xa4].{4}"),
    (9, rb"[\xcb\xcf\xd3\xa8].{8}"),
)
_RUN = re.compile(b"|".join(b"((?:%s){1,4096})" % pattern for _, pattern in _RUNS), re.DOTALL)
_CONTAINERS = re.compile(rb"[\x80-\x9f]{1,4096}")
_LONG_CONTAINERS = {0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}  # bytes of their heads
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bytes that say how many follow
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}


def passes(data: bytes, most: int, cost_of_container: int) -> bool:
    """Whether the values in ``data`` are more than ``most``, objects and lists counted several
    times. Of what is no MessagePack as much is counted as can be read.
    """
    at, count, size = 0, 0, len(data)
    if size * cost_of_container <= most:
        return False
    while at < size and count <= most:
        if (run := _RUN.match(data, at)) is not None:
            assert run.lastindex is not None
            count += (run.end() - at) // _RUNS[run.lastindex - 1][0]
            at = run.end()
        elif (heads := _CONTAINERS.match(data, at)) is not None:
            count += (heads.end() - at) * cost_of_container
            at = heads.end()
        elif (head := _LONG_CONTAINERS.get(data[at])) is not None:
            count += cost_of_container
            at += head
        else:
            count += 1
            at = _after(data, at)
    return count > most


def _after(data: bytes, at: int) -> int:
    """Where the text, the bytes or the extension at ``at`` ends."""
    kind = data[at]
    if 0xA0 <= kind <= 0xBF:
        return at + 1 + (kind & 0x1F)
    if (width := _SIZED.get(kind)) is not None:
        return at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width])
    if (width := _EXTENSIONS.get(kind)) is not None:
        return at + 2 + width + int.from_bytes(data[at + 1 : at + 1 + width])
    return at + _FIXED_EXTENSIONS.get(kind, 0) + 1
