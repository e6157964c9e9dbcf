"""Quantised blocks, built by hand from the values that they must give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from pagedd.errors import ModelError
from pagedd.models.gguf_blocks import PLAIN, QUANTISED, check_tensor, num_bytes, read_tensor
from pagedd.models.gguf_meta import Header, TensorInfo
from tests.models.gguf_writer import QType

Array = np.ndarray[Any, Any]


def info(qtype: QType, *shape: int) -> TensorInfo:
    return TensorInfo(name="t", type_id=int(qtype), shape=shape, offset=0)


def half(value: float) -> Array:
    return np.array([value], dtype=np.float16).view(np.uint8)


def six_bit_pairs(scales: Array, mins: Array) -> Array:
    """Eight 6-bit scales and eight 6-bit minima in 12 bytes, as Q4_K and Q5_K keep them."""
    low = np.concatenate([scales[:4], mins[:4]]) | (
        np.concatenate([scales[4:] >> 4, mins[4:] >> 4]) << 6
    )
    return np.concatenate([low, (scales[4:] & 15) | ((mins[4:] & 15) << 4)]).astype(np.uint8)


def nibbles(values: Array, half_size: int) -> Array:
    """Of each 2 · half_size values the first half in low nibbles, the second in high ones."""
    pairs = values.reshape(-1, 2, half_size)
    return (pairs[:, 0] | (pairs[:, 1] << 4)).astype(np.uint8).ravel()


def q4_k(random: np.random.Generator) -> tuple[Array, Array]:
    scales, mins = random.integers(0, 64, 8), random.integers(0, 64, 8)
    quants = random.integers(0, 16, 256)
    block = np.concatenate(
        [half(0.5), half(0.25), six_bit_pairs(scales, mins), nibbles(quants, 32)]
    )
    return block, 0.5 * scales.repeat(32) * quants - 0.25 * mins.repeat(32)


def q5_k(random: np.random.Generator) -> tuple[Array, Array]:
    scales, mins = random.integers(0, 64, 8), random.integers(0, 64, 8)
    quants = random.integers(0, 32, 256)
    fifth = (quants.reshape(8, 32) >> 4) << np.arange(8)[:, None]  # bit g: the g-th group of 32
    high = fifth.sum(0).astype(np.uint8)
    block = np.concatenate(
        [half(0.5), half(0.25), six_bit_pairs(scales, mins), high, nibbles(quants & 15, 32)]
    )
    return block, 0.5 * scales.repeat(32) * quants - 0.25 * mins.repeat(32)


def q6_k(random: np.random.Generator) -> tuple[Array, Array]:
    scales = random.integers(-128, 128, 16)
    quants = random.integers(0, 64, 256)
    low = nibbles(quants & 15, 64)
    crumbs = (quants >> 4).reshape(2, 4, 32) << (2 * np.arange(4)[:, None])
    high = crumbs.sum(1).astype(np.uint8).ravel()
    block = np.concatenate([low, high, scales.astype(np.int8).view(np.uint8), half(0.5)])
    return block, 0.5 * scales.repeat(16) * (quants - 32)


def q8_0(random: np.random.Generator) -> tuple[Array, Array]:
    quants = random.integers(-128, 128, 32)
    return np.concatenate([half(0.5), quants.astype(np.int8).view(np.uint8)]), 0.5 * quants


def q4_0(random: np.random.Generator) -> tuple[Array, Array]:
    quants = random.integers(0, 16, 32)
    return np.concatenate([half(0.5), nibbles(quants, 16)]), 0.5 * (quants - 8)


def q4_1(random: np.random.Generator) -> tuple[Array, Array]:
    quants = random.integers(0, 16, 32)
    return np.concatenate([half(0.5), half(-3.0), nibbles(quants, 16)]), 0.5 * quants - 3.0


def five(quants: Array) -> Array:
    """The fifth bits of 32 codes as 4 bytes, then the lower bits of them in nibbles."""
    high = np.packbits((quants >> 4).astype(np.uint8), bitorder="little")
    return np.concatenate([high, nibbles(quants & 15, 16)])


def q5_0(random: np.random.Generator) -> tuple[Array, Array]:
    quants = random.integers(0, 32, 32)
    return np.concatenate([half(0.5), five(quants)]), 0.5 * (quants - 16)


def q5_1(random: np.random.Generator) -> tuple[Array, Array]:
    quants = random.integers(0, 32, 32)
    return np.concatenate([half(0.5), half(-3.0), five(quants)]), 0.5 * quants - 3.0


BUILDERS = {
    QType.Q8_0: q8_0,
    QType.Q4_0: q4_0,
    QType.Q4_1: q4_1,
    QType.Q5_0: q5_0,
    QType.Q5_1: q5_1,
    QType.Q4_K: q4_k,
    QType.Q5_K: q5_k,
    QType.Q6_K: q6_k,
}


def test_every_quantised_type_has_a_block_built_by_hand() -> None:
    assert {int(qtype) for qtype in BUILDERS} == QUANTISED


@pytest.mark.parametrize("qtype", BUILDERS, ids=lambda q: q.name)
def test_blocks_give_the_values_that_they_were_built_from(qtype: QType) -> None:
    random = np.random.default_rng(int(qtype))
    blocks, values = zip(*(BUILDERS[qtype](random) for _ in range(12)), strict=True)
    expected = torch.from_numpy(np.stack(values).astype(np.float32)).reshape(4, -1)
    found = read_tensor(np.concatenate(blocks), info(qtype, *expected.shape), None)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("qtype", BUILDERS, ids=lambda q: q.name)
def test_random_bytes_agree_with_the_gguf_package(qtype: QType, dtype: torch.dtype) -> None:
    shape = (3, 2, 512)
    size = num_bytes(info(qtype, *shape))
    raw = np.random.default_rng(3).integers(0, 256, size, dtype=np.uint8)
    with np.errstate(all="ignore"):  # random scales may be infinite or no numbers
        reference = gguf.quants.dequantize(raw.reshape(6, -1), qtype)
        found = read_tensor(raw, info(qtype, *shape), dtype)
    expected = torch.from_numpy(reference).reshape(shape).to(dtype)
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("type_id", PLAIN)
def test_plain_types_are_copied_bit_by_bit(type_id: int) -> None:
    values = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).to(PLAIN[type_id])
    raw = values.view(torch.uint8).numpy().flatten()
    found = read_tensor(raw, TensorInfo("t", type_id, (3, 5), 0), None)
    assert found.dtype == values.dtype
    assert torch.equal(found, values)
    raw[:] = 0
    assert torch.equal(found, values)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (info(QType.IQ2_XXS, 1, 256), "has the type IQ2_XXS, which is not supported"),
        (TensorInfo("t", 999, (1, 256), 0), "has the type number 999"),
        (info(QType.Q4_K, 2, 128), r"no whole number of blocks \(128 values, blocks of 256\)"),
        (info(QType.F32, 0, 4), "tensor t is empty"),
        (info(QType.F32, 4, 4), "truncated: tensor t ends at byte 64, the file has 63"),
        (info(QType.F32, 2**62, 2**62), "truncated"),
    ],
)
def test_tensors_that_cannot_be_read_are_named(tensor: TensorInfo, message: str) -> None:
    header = Header(path=Path("m.gguf"), metadata={}, tensors={"t": tensor}, size=63)
    with pytest.raises(ModelError, match=message):
        check_tensor(header, tensor)
