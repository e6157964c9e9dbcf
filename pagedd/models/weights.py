"""Safetensors checkpoints, memory-mapped: one file, or shards with an index.

Whatever is missing, contradictory or unknown is an error that names it, before any weight is read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pagedd.errors import ModelError
from pagedd.models.gguf_meta import shown
from pagedd.models.settings import read_json
from pagedd.models.spec import EMBEDDING, OUTPUT, ModelSpec, Weights, tensor_shapes

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
# Stored forms of what is computed here: they carry nothing.
_HARMLESS = re.compile(r".*\.(rotary_emb\.inv_freq|masked_bias|attn\.bias)")
_STORED = ("F64", "F32", "F16", "BF16")


class SafetensorsWeights:
    """The tensors of a folder's safetensors files. ``get`` returns mapped memory: do not write."""

    def __init__(self, folder: Path) -> None:
        """Open every file; raises ``ModelError`` naming a shard or tensor that is missing."""
        self._files: dict[str, Any] = {}  # file name → open handle
        self._where: dict[str, str] = {}  # tensor → file name
        index = folder / INDEX_FILE
        if index.exists():
            listed = _weight_map(index)
            held = self._open(folder, sorted(set(listed.values())), f" (named by {index.name})")
            for name, file in listed.items():
                if name not in held[file]:
                    raise ModelError(
                        f"{folder / file}: tensor {shown(name)} of the index is missing"
                    )
            self._where.update(listed)
            return
        single = folder / SINGLE_FILE
        files = [SINGLE_FILE] if single.exists() else _other_files(folder)
        self._open(folder, files, "")

    def names(self) -> set[str]:
        """See ``Weights.names``."""
        return set(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """See ``Weights.shape``."""
        return tuple(self._slice(name).get_shape())

    def get(self, name: str) -> Tensor:
        """See ``Weights.get``."""
        stored = self._slice(name).get_dtype()
        if stored not in _STORED:
            raise ModelError(f"tensor {name} is stored as {stored}, which is not supported")
        try:
            tensor: Tensor = self._files[self._where[name]].get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"tensor {name} cannot be read: {error}") from error
        return tensor.float() if tensor.dtype == torch.float64 else tensor

    def matrix(self, name: str, dtype: torch.dtype) -> Tensor:
        """See ``Weights.matrix``: these files hold dense tensors only."""
        return self.get(name)

    def _slice(self, name: str) -> Any:
        file = self._where.get(name)
        if file is None:
            raise ModelError(f"tensor {name} is missing from the checkpoint")
        return self._files[file].get_slice(name)

    def _open(self, folder: Path, files: list[str], named_by: str) -> dict[str, set[str]]:
        """Open ``files``; → the names of the tensors in each."""
        held: dict[str, set[str]] = {}
        for file in files:
            path = folder / file
            if not path.exists():
                raise ModelError(f"{path} is missing{named_by}")
            try:
                handle: Any = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} is not a readable safetensors file: {error}") from error
            self._files[file] = handle
            held[file] = set(handle.keys())
            self._where.update(dict.fromkeys(held[file], file))
        return held


def check_tensors(spec: ModelSpec, weights: Weights) -> ModelSpec:
    """Compare the checkpoint with what the model needs; → the spec with its tying settled.

    A tied checkpoint that holds a different output matrix of its own is served untied, as the
    reference does. Raises ``ModelError`` naming a tensor that is missing, has another shape or is
    unknown.
    """
    spec = _settle_tying(spec, weights)
    expected, present = tensor_shapes(spec), weights.names()
    for name, shape in expected.items():
        if name not in present:
            raise ModelError(f"tensor {name} is missing from the checkpoint")
        found = weights.shape(name)
        if found != shape:
            raise ModelError(
                f"tensor {name} has the shape {list(found)}, but the config says {list(shape)}"
            )
    known = expected.keys() | ({OUTPUT} if spec.tie_embeddings else set())
    for name in sorted(present - known):
        if not _HARMLESS.fullmatch(name):
            raise ModelError(
                f"tensor {shown(name)} of the checkpoint is unknown to {spec.architecture}"
            )
    return spec


def _settle_tying(spec: ModelSpec, weights: Weights) -> ModelSpec:
    if not spec.tie_embeddings or not {EMBEDDING, OUTPUT} <= weights.names():
        return spec
    if weights.shape(OUTPUT) != weights.shape(EMBEDDING):
        raise ModelError(
            f"tensor {OUTPUT} has the shape {list(weights.shape(OUTPUT))}, but it is tied to "
            f"{EMBEDDING} of shape {list(weights.shape(EMBEDDING))}"
        )
    same = torch.equal(weights.get(EMBEDDING), weights.get(OUTPUT))
    return spec if same else replace(spec, tie_embeddings=False)


def _weight_map(index: Path) -> dict[str, str]:
    mapped = read_json(index).get("weight_map")
    if not isinstance(mapped, dict) or not all(isinstance(file, str) for file in mapped.values()):
        raise ModelError(f"{index} has no weight_map")
    for file in mapped.values():
        if Path(file).name != file:
            raise ModelError(f"{index} names {file!r}, which is no file of its folder")
    return mapped


def _other_files(folder: Path) -> list[str]:
    """Safetensors files under other names, for want of the usual one."""
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder} holds no .safetensors file")
    return files
