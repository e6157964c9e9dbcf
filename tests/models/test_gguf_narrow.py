"""Quantised GGUF tensors as codes, scales and offsets: the same values, the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from pagedd.models.gguf import GgufWeights
from pagedd.models.gguf_blocks import num_bytes
from pagedd.models.gguf_narrow import read_quantized
from pagedd_kernels.quantized import BlockQuantized
from tests.models.gguf_writer import QType, write_checkpoint
from tests.models.test_gguf_blocks import BUILDERS, half, info
from tests.tiny.models import build

BITS = {
    QType.Q4_0: 4,
    QType.Q4_1: 4,
    QType.Q5_0: 8,
    QType.Q5_1: 8,
    QType.Q8_0: 8,
    QType.Q4_K: 4,
    QType.Q5_K: 8,
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# The bytes of a block that hold float16 scales.
SCALES_AT = {qtype: (0, 2) if qtype.name.endswith(("_1", "_K")) else (0,) for qtype in BITS}


def random_blocks(qtype: QType, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """Any codes, and any scales below 2 in size, with every exponent down to subnormal ones."""
    random = np.random.default_rng(int(qtype))
    size = num_bytes(info(qtype, rows, columns))
    _, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    blocks = random.integers(0, 256, size, dtype=np.uint8).reshape(-1, block_bytes)
    for at in SCALES_AT[qtype]:
        blocks[:, at + 1] &= 0xBF  # clear the top bit of the exponent
    return blocks.reshape(-1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("qtype", BITS, ids=lambda q: q.name)
def test_random_blocks_give_what_the_gguf_package_gives(qtype: QType, dtype: torch.dtype) -> None:
    raw = random_blocks(qtype, 24, 512)
    found = read_quantized(raw, info(qtype, 24, 512), dtype)
    assert found is not None
    expected = torch.from_numpy(gguf.quants.dequantize(raw.reshape(24, -1), qtype)).to(dtype)
    assert found.bits == BITS[qtype]
    assert int(found.codes.max()) < 1 << found.bits
    assert torch.equal(found.dequantize(), expected)


@pytest.mark.parametrize("qtype", BITS, ids=lambda q: q.name)
def test_blocks_built_by_hand_give_their_values(qtype: QType) -> None:
    random = np.random.default_rng(int(qtype))
    blocks, values = zip(*(BUILDERS[qtype](random) for _ in range(12)), strict=True)
    expected = torch.from_numpy(np.stack(values).astype(np.float32)).reshape(4, -1)
    found = read_quantized(np.concatenate(blocks), info(qtype, *expected.shape), torch.float32)
    assert found is not None
    assert torch.equal(found.dequantize(), expected)


@pytest.mark.parametrize("qtype", [QType.Q4_0, QType.Q5_0, QType.Q8_0], ids=lambda q: q.name)
def test_an_offset_too_large_for_float16_is_kept_in_float32(qtype: QType) -> None:
    raw = random_blocks(qtype, 2, 64)
    raw[:2] = half(60000.0)
    found = read_quantized(raw, info(qtype, 2, 64), torch.float32)
    assert found is not None
    assert found.scales.dtype is torch.float32
    expected = torch.from_numpy(gguf.quants.dequantize(raw.reshape(2, -1), qtype))
    assert torch.equal(found.dequantize(), expected)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("qtype", BITS, ids=lambda q: q.name)
def test_scales_that_are_no_numbers_have_no_such_form(qtype: QType, value: float) -> None:
    raw = random_blocks(qtype, 2, 256)
    raw[:2] = half(value)
    assert read_quantized(raw, info(qtype, 2, 256), torch.float32) is None


@pytest.mark.parametrize("qtype", [QType.Q6_K, QType.F16, QType.F32], ids=lambda q: q.name)
def test_other_types_have_no_such_form(qtype: QType) -> None:
    raw = np.zeros(num_bytes(info(qtype, 2, 256)), dtype=np.uint8)
    assert read_quantized(raw, info(qtype, 2, 256), torch.float32) is None


@pytest.mark.parametrize("qtype", [QType.Q4_0, QType.Q4_1, QType.Q8_0], ids=lambda q: q.name)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_checkpoints_matrices_are_those_of_get(tmp_path: Path, kind: str, qtype: QType) -> None:
    """Llama's rows of q and k are in another order in the file, Qwen's are not."""
    path = write_checkpoint(build(kind, tmp_path / "folder"), tmp_path / "m.gguf", qtype)
    weights = GgufWeights(path, torch.bfloat16)
    for name in weights.names():
        found, expected = weights.matrix(name, torch.bfloat16), weights.get(name)
        if expected.ndim == 1:
            assert isinstance(found, torch.Tensor), name
            assert torch.equal(found, expected), name
        else:
            assert isinstance(found, BlockQuantized), name
            assert torch.equal(found.dequantize(), expected), name
