"""The reader of GGUF heads agrees with the gguf package and survives any damage."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedd.errors import ModelError, ModelNotFound
from pagedd.models.gguf_meta import metadata, read_header, shown
from tests.models.gguf_writer import QType, write

KEYS = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.tokens": ["<s>", "Ġthe", "", "😀", "\n"],
    "tokenizer.ggml.scores": [0.0, -1.5, 2.25],
    "tokenizer.ggml.token_type": [3, 1, 1],
    "tokenizer.chat_template": "{% for m in messages %}…{% endfor %}",
}
TENSORS = {
    "a.weight": (np.ones((3, 32), dtype=np.float32), QType.Q8_0),
    "b.weight": (np.ones(5, dtype=np.float32), QType.F32),
    "c.weight": (np.ones((2, 3, 4), dtype=np.float32), QType.F16),
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("meta") / "sample.gguf", KEYS, TENSORS)


def test_metadata_as_python_values(sample: Path) -> None:
    found = metadata(sample)
    assert found == KEYS
    assert type(found["tokenizer.ggml.add_bos_token"]) is bool
    assert type(found["llama.block_count"]) is int


def test_agrees_with_the_gguf_package(sample: Path) -> None:
    header, reader = read_header(sample), gguf.GGUFReader(sample)
    assert header.metadata == {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")
    }
    assert {(t.name, t.type_id, t.shape, t.offset) for t in header.tensors.values()} == {
        (t.name, int(t.tensor_type), tuple(reversed(t.shape.tolist())), t.data_offset)
        for t in reader.tensors
    }


def test_every_value_type(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    numbers = {
        "UINT8": 255,
        "INT8": -128,
        "UINT16": 65535,
        "INT16": -32768,
        "UINT32": 2**32 - 1,
        "INT32": -(2**31),
        "UINT64": 2**64 - 1,
        "INT64": -(2**63),
        "FLOAT32": 0.5,
        "FLOAT64": 1e300,
    }
    for kind, number in numbers.items():
        writer.add_key_value(kind, number, gguf.GGUFValueType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert {**numbers, "general.architecture": "llama"} == metadata(tmp_path / "m.gguf")


def head(*parts: bytes, version: int = 3, tensors: int = 0, keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def tensor(name: bytes, *dims: int, kind: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


UINT32, STRING, ARRAY = (struct.pack("<I", kind) for kind in (4, 8, 9))
ONE = UINT32 + struct.pack("<I", 1)
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "magic": (b"GGML" + bytes(60), "not a GGUF file"),
    "version 1": (head(version=1), "GGUF version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "head cut": (head()[:20], "truncated"),
    "endless keys": (head(keys=2**63), "truncated"),
    "endless tensors": (head(tensors=2**63), "truncated"),
    "endless string": (head(struct.pack("<Q", 2**63), keys=1), "truncated"),
    "endless numbers": (
        head(text(b"k"), ARRAY, UINT32, struct.pack("<Q", 2**61), keys=1),
        "truncated",
    ),
    "endless strings": (
        head(text(b"k"), ARRAY, STRING, struct.pack("<Q", 2**61), keys=1),
        "truncated",
    ),
    "long string in a list": (
        head(text(b"k"), ARRAY, STRING, struct.pack("<QQ", 1, 2**62), keys=1),
        "truncated",
    ),
    "value type": (head(text(b"k"), struct.pack("<I", 77), bytes(64), keys=1), "value type 77"),
    "nested list": (head(text(b"k"), ARRAY, ARRAY, bytes(64), keys=1), "value type 9"),
    "key twice": (head(text(b"k"), ONE, text(b"k"), ONE, keys=2), "key k twice"),
    "key not UTF-8": (head(text(b"\xff\xfe"), ONE, keys=1), "a metadata key is not valid UTF-8"),
    "value not UTF-8": (head(text(b"k"), STRING, text(b"\xff"), keys=1), "k is not valid UTF-8"),
    "token not UTF-8": (
        head(text(b"k"), ARRAY, STRING, struct.pack("<Q", 1), text(b"\xff"), keys=1),
        "k is not valid UTF-8",
    ),
    "alignment": (
        head(text(b"general.alignment"), UINT32, struct.pack("<I", 24), keys=1),
        "general.alignment is 24",
    ),
    "no dimensions": (head(tensor(b"t"), tensors=1), "tensor t has 0 dimensions"),
    "many dimensions": (head(tensor(b"t", 1, 1, 1, 1, 1), tensors=1), "has 5 dimensions"),
    "not aligned": (head(tensor(b"t", 1, offset=4), tensors=1), "not aligned to 32"),
    "tensor twice": (head(tensor(b"t", 1), tensor(b"t", 1), tensors=2), "tensor t twice"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_one_line(tmp_path: Path, name: str) -> None:
    content, message = DAMAGED[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_changed_bytes_are_read_or_refused(sample: Path, data: st.DataObject) -> None:
    content = bytearray(sample.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = sample.with_name("changed.gguf")
    path.write_bytes(content)
    # Anything but a ModelError would fail the test.
    with contextlib.suppress(ModelError):
        assert read_header(path).size == len(content)


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        read_header(tmp_path)


def test_names_are_shown_without_control_characters() -> None:
    assert shown("blk.0.attn_q") == "blk.0.attn_q"
    assert shown("\x1b[2J") == "'\\x1b[2J'"
    assert len(shown("x" * 1000)) == 82
