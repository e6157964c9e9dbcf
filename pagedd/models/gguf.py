"""A model in one GGUF file: its spec, and its weights under the names that the decoder asks for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pagedd.errors import ModelError
from pagedd.models.gguf_blocks import PLAIN, check_tensor, read_tensor
from pagedd.models.gguf_meta import Header, TensorInfo, read_header
from pagedd.models.gguf_narrow import read_quantized
from pagedd.models.gguf_spec import architecture_of, spec_from_header
from pagedd.models.spec import EMBEDDING, FINAL_NORM, OUTPUT, ModelSpec
from pagedd_kernels.quantized import BlockQuantized

ROPE_FREQS = "rope_freqs.weight"  # divisors of the inverse frequencies: part of the spec

_GLOBAL = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": OUTPUT,
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_TENSOR = re.compile(r"blk\.(0|[1-9]\d*)\.(\w+)\.(weight|bias)", re.ASCII)


def load_gguf_spec(path: Path) -> ModelSpec:
    """The model that the file describes.

    Errors: ``ModelNotFound``, ``ModelError`` with one line that names the key or tensor.
    """
    header = read_header(path)
    return spec_from_header(header, _frequency_factors(header))


class GgufWeights:
    """The tensors of a GGUF file; implements ``Weights``.

    ``get`` gives ``dtype``; with ``None`` it gives what the file holds, and float32 for quantised
    tensors. Each tensor is read when asked for, so that loading holds one copy of the model.
    """

    def __init__(self, path: Path, dtype: torch.dtype | None = None) -> None:
        """Check every tensor of the file. Errors: as :func:`load_gguf_spec`."""
        header = read_header(path)
        for info in header.tensors.values():
            check_tensor(header, info)
        self._path = path
        self._dtype = dtype
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        self._tensors = {
            _canonical(name): info for name, info in header.tensors.items() if name != ROPE_FREQS
        }
        self._heads: dict[str, int] = {}
        if architecture_of(header).permuted:
            spec = spec_from_header(header, _frequency_factors(header))
            self._heads = {"q_proj": spec.num_heads, "k_proj": spec.num_kv_heads}

    def names(self) -> set[str]:
        """Canonical names of all tensors; a tensor without one goes by its own name."""
        return set(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor without reading it. Errors: ``ModelError`` if it is missing."""
        return self._info(name).shape

    def get(self, name: str) -> Tensor:
        """The tensor on the CPU. Errors: ``ModelError`` if it is missing or contradictory."""
        info = self._info(name)
        heads = self._permuted_heads(name, info)
        values = read_tensor(self._data, info, self._dtype)
        return values if heads is None else unpermute(values, heads)

    def matrix(self, name: str, dtype: torch.dtype) -> Tensor | BlockQuantized:
        """In blocks where the file has it so (see :mod:`.gguf_narrow`), else as ``get``."""
        info = self._info(name)
        heads = self._permuted_heads(name, info)
        found = read_quantized(self._data, info, dtype)
        if found is None:
            return self.get(name)
        if heads is None:
            return found
        codes, scales, offsets = (
            unpermute(part, heads) for part in (found.codes, found.scales, found.offsets)
        )
        return BlockQuantized(codes, scales, offsets, found.bits, dtype)

    def _permuted_heads(self, name: str, info: TensorInfo) -> int | None:
        """How many heads have their rows in another order; None: the order is ours."""
        heads = self._heads.get(name.split(".")[-2]) if "." in name else None
        if heads is not None and info.shape[0] % (2 * heads):
            raise ModelError(
                f"{self._path}: tensor {info.name} has {info.shape[0]} rows, "
                f"which contradicts {heads} heads"
            )
        return heads

    def _info(self, name: str) -> TensorInfo:
        try:
            return self._tensors[name]
        except KeyError:
            raise ModelError(f"{self._path} lacks the tensor {_gguf_name(name)}") from None


def unpermute(rows: Tensor, heads: int) -> Tensor:
    """Undo the row order of q and k in files of the Llama family.

    The file has the two halves of a rotation as neighbours (2i, 2i + 1), the decoder wants them
    at i and i + head_dim / 2. ``rows``: [heads * head_dim, ...], weights or biases.
    """
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)


def _frequency_factors(header: Header) -> tuple[float, ...]:
    info = header.tensors.get(ROPE_FREQS)
    if info is None:
        return ()
    check_tensor(header, info)
    if info.type_id not in PLAIN or len(info.shape) != 1:
        raise ModelError(f"{header.path}: tensor {ROPE_FREQS} is not a plain vector")
    data = np.memmap(header.path, dtype=np.uint8, mode="r")
    factors: list[float] = read_tensor(data, info, torch.float32).tolist()
    return tuple(factors)


def _canonical(name: str) -> str:
    if name in _GLOBAL:
        return _GLOBAL[name]
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None or match[2] not in _LAYER:
        return name
    return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"


def _gguf_name(name: str) -> str:
    """The name in the file, for errors."""
    for ours, canonical in _GLOBAL.items():
        if canonical == name:
            return ours
    for ours, canonical in _LAYER.items():
        match = re.fullmatch(rf"model\.layers\.(\d+)\.{re.escape(canonical)}\.(weight|bias)", name)
        if match is not None:
            return f"blk.{match[1]}.{ours}.{match[2]}"
    return name
