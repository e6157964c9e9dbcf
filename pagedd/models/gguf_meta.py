"""The head of a GGUF file: metadata as Python values, and where each tensor lies.

Source: the GGUF specification, versions 2 and 3, little-endian. Standard library only. The ``gguf``
package's reader makes several arrays per string, which costs seconds on a vocabulary of 50,000
and more; this one reads the same head in a tenth of a second and checks every length against the
file, so that a damaged or hostile file is an error and not a crash.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from pagedd.errors import ModelError, ModelNotFound

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

Scalar = str | int | float | bool
Value = Scalar | list[Scalar]

# Value type number → struct format; 8 is a string and 9 an array.
_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as the file declares it: ``shape`` row-major, ``offset`` from the file's start."""

    name: str
    type_id: int
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """Everything before the data. ``size`` is the file's length in bytes."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]
    size: int


def metadata(path: Path) -> dict[str, Value]:
    """All metadata of the file, key → str, int, float, bool or a list of one of these.

    Errors: ``ModelNotFound``, ``ModelError`` with one line.
    """
    return read_header(path).metadata


def shown(name: str) -> str:
    """``name`` as an error message may print it: no control characters, no endless length."""
    return name if name.isprintable() and len(name) <= 80 else repr(name[:80])


def read_header(path: Path) -> Header:
    """Read metadata and tensor table. Errors: ``ModelNotFound``, ``ModelError`` with one line."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(path, data).header()
    except FileNotFoundError as error:
        raise ModelNotFound(f"{path}: no such file") from error
    except ValueError as error:  # an empty file cannot be mapped
        raise ModelError(f"{path} is empty") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


class _Cursor:
    """A position in the mapped file; every read is checked against the end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.at = 0

    def header(self) -> Header:
        if self.data[:4] != MAGIC:
            raise ModelError(f"{self.path} is not a GGUF file: it does not begin with 'GGUF'")
        self.at = 4
        version = self.number("I")
        if version & 0xFFFF == 0:
            raise ModelError(f"{self.path} is a big-endian GGUF file, which is not supported")
        if version not in VERSIONS:
            raise ModelError(f"{self.path} has GGUF version {version}; versions 2 and 3 are known")
        tensor_count, key_count = self.number("Q"), self.number("Q")
        found: dict[str, Value] = {}
        for _ in range(key_count):
            key = self.string("a metadata key")
            if key in found:
                raise ModelError(f"{self.path} holds the metadata key {shown(key)} twice")
            found[key] = self.value(key)
        alignment = found.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise ModelError(f"{self.path}: general.alignment is {alignment}, not a power of two")
        tensors = self.tensor_table(tensor_count, alignment)
        return Header(path=self.path, metadata=found, tensors=tensors, size=self.size)

    def tensor_table(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        listed: dict[str, TensorInfo] = {}
        for _ in range(count):
            name = self.string("a tensor name")
            if name in listed:
                raise ModelError(f"{self.path} holds the tensor {shown(name)} twice")
            dimensions = self.number("I")
            if not 1 <= dimensions <= MAX_DIMENSIONS:
                raise ModelError(f"{self.path}: tensor {shown(name)} has {dimensions} dimensions")
            shape = tuple(reversed(self.numbers("Q", dimensions)))
            type_id, offset = self.number("I"), self.number("Q")
            if offset % alignment:
                raise ModelError(
                    f"{self.path}: tensor {shown(name)} is not aligned to {alignment} bytes"
                )
            listed[name] = TensorInfo(name, type_id, shape, offset)
        start = -(-self.at // alignment) * alignment
        return {name: replace(t, offset=start + t.offset) for name, t in listed.items()}

    def value(self, key: str) -> Value:
        kind = self.number("I")
        if kind == _STRING:
            return self.string(key)
        if kind != _ARRAY:
            return self.scalars(key, kind, 1)[0]
        kind, count = self.number("I"), self.number("Q")
        return self.strings(key, count) if kind == _STRING else self.scalars(key, kind, count)

    def scalars(self, key: str, kind: int, count: int) -> list[Scalar]:
        code = _FORMATS.get(kind)
        if code is None:
            raise ModelError(
                f"{self.path}: metadata key {shown(key)} has the unknown value type {kind}"
            )
        return list(self.numbers(code, count))

    def strings(self, key: str, count: int) -> list[Scalar]:
        # Inlined and without bounds helpers: this loop runs hundreds of thousands of times.
        data, at, size = self.data, self.at, self.size
        found: list[Scalar] = []
        try:
            for _ in range(count):
                begin = at + 8
                at = begin + int.from_bytes(data[at:begin], "little")
                if at > size or begin > size:
                    raise self.truncated()
                found.append(data[begin:at].decode())
        except UnicodeDecodeError as error:
            raise self.not_utf8(key) from error
        self.at = at
        return found

    def string(self, what: str) -> str:
        length = self.number("Q")
        end = self.at + length
        if end > self.size:
            raise self.truncated()
        raw = self.data[self.at : end]
        self.at = end
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.not_utf8(what) from error

    def number(self, code: str) -> int:
        value: int = self.numbers(code, 1)[0]
        return value

    def numbers(self, code: str, count: int) -> tuple[int, ...]:
        width = struct.calcsize(f"<{code}")
        end = self.at + width * count
        if end > self.size:
            raise self.truncated()
        values = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at = end
        return values

    def truncated(self) -> ModelError:
        return ModelError(
            f"{self.path} is truncated or damaged: its head does not end within {self.size} bytes"
        )

    def not_utf8(self, what: str) -> ModelError:
        return ModelError(f"{self.path}: {shown(what)} is not valid UTF-8")
