"""From the bytes of a GGUF tensor to torch, row by row.

The ``gguf`` package knows the block formats; what is added here is the target dtype and a bound on
the memory in between: quantised rows pass through float32 a chunk at a time.
"""

from __future__ import annotations

import math
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from pagedd.errors import ModelError
from pagedd.models.gguf_meta import Header, TensorInfo, shown

_Type = gguf.GGMLQuantizationType
PLAIN = {
    int(_Type.F32): torch.float32,
    int(_Type.F16): torch.float16,
    int(_Type.BF16): torch.bfloat16,
}
QUANTISED = frozenset(
    int(_Type[name]) for name in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
)
_CHUNK = 1 << 20  # elements that are float32 at a time


def check_tensor(header: Header, info: TensorInfo) -> None:
    """A type that can be read, whole blocks in each row, and all of it within the file.

    Errors: ``ModelError`` naming the tensor.
    """
    if info.type_id not in PLAIN and info.type_id not in QUANTISED:
        names = ", ".join(_type_name(i) for i in (*PLAIN, *sorted(QUANTISED)))
        raise ModelError(
            f"{header.path}: tensor {shown(info.name)} has the type {_type_name(info.type_id)}, "
            f"which is not supported (supported: {names})"
        )
    if 0 in info.shape:
        raise ModelError(f"{header.path}: tensor {shown(info.name)} is empty")
    block, _ = _block(info)
    if info.shape[-1] % block:
        raise ModelError(
            f"{header.path}: rows of tensor {shown(info.name)} are no whole number of blocks "
            f"({info.shape[-1]} values, blocks of {block})"
        )
    end = info.offset + num_bytes(info)
    if end > header.size:
        raise ModelError(
            f"{header.path} is truncated: tensor {shown(info.name)} ends at byte {end}, "
            f"the file has {header.size}"
        )


def num_bytes(info: TensorInfo) -> int:
    """Length of the tensor's data in the file."""
    block, size = _block(info)
    return math.prod(info.shape) // block * size


def read_tensor(data: np.ndarray[Any, Any], info: TensorInfo, dtype: torch.dtype | None) -> Tensor:
    """The tensor in ``dtype``, or in its own (float32 if it is quantised), as a copy in memory.

    ``data``: the whole file as uint8. The info must have passed :func:`check_tensor`.
    """
    raw = data[info.offset : info.offset + num_bytes(info)]
    plain = PLAIN.get(info.type_id)
    if plain is not None:
        # A copy first: the map is read-only, and a file cut short later must not kill the engine.
        values = torch.from_numpy(np.array(raw)).view(plain).reshape(info.shape)
        return values if dtype is None else values.to(dtype)
    columns = info.shape[-1]
    count = math.prod(info.shape[:-1])
    rows = raw.reshape(count, -1)
    out = torch.empty((count, columns), dtype=dtype or torch.float32)
    step = max(1, _CHUNK // columns)
    for first in range(0, count, step):
        part = gguf.quants.dequantize(rows[first : first + step], _Type(info.type_id))
        out[first : first + step] = torch.from_numpy(part)
    return out.reshape(info.shape)


def _block(info: TensorInfo) -> tuple[int, int]:
    """(values, bytes) of one block of the tensor's type."""
    values, size = gguf.GGML_QUANT_SIZES[_Type(info.type_id)]
    return int(values), int(size)


def _type_name(type_id: int) -> str:
    try:
        return str(_Type(type_id).name)
    except ValueError:
        return f"number {type_id}"
