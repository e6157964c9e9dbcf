"""From an engine's configuration to a model that can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from pagedd.engine.messages import EngineConfig
from pagedd.errors import UsageError
from pagedd.models.config import DTYPES, read_spec
from pagedd.models.decoder import Decoder
from pagedd.models.dummy import DummyWeights
from pagedd.models.resolve import ModelFiles, resolve
from pagedd.models.spec import ModelSpec, Weights
from pagedd.models.weights import SafetensorsWeights, check_tensors
from pagedd_kernels.backend import Backend, Selection, select_backend

Progress = Callable[[str, float], None]
Check = Callable[[ModelSpec, torch.device], object]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device, and how it came to its backend."""

    spec: ModelSpec  # dtype: that of the activations
    model: Decoder
    backend: Backend
    device: torch.device
    refused: tuple[
        tuple[str, str], ...
    ]  # (backend, reason) of those that would have been preferred


def load_model(config: EngineConfig, progress: Progress, check: Check | None = None) -> LoadedModel:
    """Load the model of ``config``; ``progress(phase, fraction)`` is called as it goes on.

    ``check`` is called with the spec that the model will have before any weight is read, and may
    raise. Errors: ``ModelNotFound``, ``ModelError`` (the files), ``UsageError`` (device, dtype,
    format).
    """
    if config.load_format not in ("auto", "dummy"):
        raise UsageError(f"load format {config.load_format!r} is unknown: auto or dummy")
    dummy = config.load_format == "dummy"
    device = _device(config.device)
    files = resolve(config.model, need_weights=not dummy)
    progress("weights", 0.0)
    spec = replace(_read_spec(files), name=files.name)
    spec = replace(spec, dtype=_activation_dtype(config.dtype, spec.dtype, device))
    weights = DummyWeights(spec, config.seed or 0) if dummy else _open(files, spec.dtype)
    spec = check_tensors(spec, weights)
    if check is not None:
        check(spec, device)
    selection = _select(device, spec.dtype)
    model = Decoder(
        spec, weights, selection.backend, device, lambda fraction: progress("weights", fraction)
    )
    return LoadedModel(spec, model, selection.backend, device, tuple(selection.refused))


def _read_spec(files: ModelFiles) -> ModelSpec:
    if files.kind == "folder":
        return read_spec(files.path, files.name)
    # The container's reader costs an import that folders do not need.
    from pagedd.models.gguf import load_gguf_spec

    return load_gguf_spec(files.path)


def _open(files: ModelFiles, dtype: torch.dtype) -> Weights:
    """The checkpoint, read no further than its head; quantised tensors become ``dtype``."""
    if files.kind == "folder":
        return SafetensorsWeights(files.path)
    from pagedd.models.gguf import GgufWeights

    return GgufWeights(files.path, dtype)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise UsageError(f"device {name!r} is unknown: auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda: no CUDA device is available")
    return torch.device(name)


def _activation_dtype(name: str, stored: torch.dtype, device: torch.device) -> torch.dtype:
    """``auto``: the checkpoint's dtype; float16 becomes bfloat16 on a CPU, which computes it."""
    if name == "auto":
        half_on_cpu = stored == torch.float16 and device.type == "cpu"
        return torch.bfloat16 if half_on_cpu else stored
    if name not in DTYPES:
        raise UsageError(f"dtype {name!r} is unknown: auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def _select(device: torch.device, dtype: torch.dtype) -> Selection:
    try:
        return select_backend(device, dtype)
    except ValueError as error:
        raise UsageError(str(error)) from error
