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
from pagedd.models.reader import WEIGHT_FORMS, WeightForm
from pagedd.models.resolve import ModelFiles, resolve
from pagedd.models.spec import ModelSpec, Weights
from pagedd.models.weights import SafetensorsWeights, check_tensors
from pagedd_kernels.backend import Backend, Selection, select_backend

GIB = 1 << 30
KV_DTYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
Progress = Callable[[str, float], None]
Check = Callable[[ModelSpec, torch.device], object]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device, and how it came to its backend."""

    spec: ModelSpec  # dtype: that of the activations
    model: Decoder
    backend: Backend
    device: torch.device
    refused: tuple[tuple[str, str], ...]  # (backend, reason) of those that would be preferred
    form: WeightForm

    @property
    def note(self) -> str:
        """What the weights take, a sentence for the log."""
        said = f"weights: {self.model.weight_bytes / GIB:.2f} GiB ({self.form})"
        if self.form in ("int8", "int4") and not self.backend.quantized:
            said += f"; the backend {self.backend.name} keeps them dense: nothing is gained"
        return said


def load_model(config: EngineConfig, progress: Progress, check: Check | None = None) -> LoadedModel:
    """Load the model of ``config``; ``progress(phase, fraction)`` is called as it goes on.

    ``check`` is called with the spec that the model will have before any weight is read, and may
    raise. Errors: ``ModelNotFound``, ``ModelError`` (the files), ``UsageError`` (device, dtypes,
    weights, format).
    """
    if config.load_format not in ("auto", "dummy"):
        raise UsageError(f"load format {config.load_format!r} is unknown: auto or dummy")
    dummy = config.load_format == "dummy"
    form, dtype = _weight_form(config)
    device = _device(config.device)
    files = resolve(config.model, need_weights=not dummy)
    progress("weights", 0.0)
    spec = replace(_read_spec(files), name=files.name)
    kv = kv_dtype(config.kv_cache_dtype, device)
    spec = replace(spec, dtype=_activation_dtype(dtype, spec.dtype, device), kv_dtype=kv)
    weights = DummyWeights(spec, config.seed or 0) if dummy else _open(files, spec.dtype, form)
    spec = check_tensors(spec, weights)
    if check is not None:
        check(spec, device)
    selection = choose_backend(device, spec.dtype, spec.kv_dtype)
    backend = selection.backend
    model = Decoder(
        spec, weights, backend, device, lambda fraction: progress("weights", fraction), form
    )
    return LoadedModel(spec, model, backend, device, tuple(selection.refused), form)


def _read_spec(files: ModelFiles) -> ModelSpec:
    if files.kind == "folder":
        return read_spec(files.path, files.name)
    # The container's reader costs an import that folders do not need.
    from pagedd.models.gguf import load_gguf_spec

    return load_gguf_spec(files.path)


def _open(files: ModelFiles, dtype: torch.dtype, form: WeightForm) -> Weights:
    """The checkpoint, read no further than its head.

    What is dense becomes ``dtype``, unless it is to be made narrow from what the file holds.
    """
    if files.kind == "folder":
        return SafetensorsWeights(files.path)
    from pagedd.models.gguf import GgufWeights

    return GgufWeights(files.path, dtype if form in ("auto", "dense") else None)


def _weight_form(config: EngineConfig) -> tuple[WeightForm, str]:
    """Form and dtype that were asked for; bf16 is short for dense with the dtype bfloat16."""
    if config.weights == "bf16":
        if config.dtype not in ("auto", "bfloat16"):
            raise UsageError(
                f"--weights bf16 contradicts --dtype {config.dtype}: "
                "--weights dense keeps them in that dtype"
            )
        return "dense", "bfloat16"
    for form in WEIGHT_FORMS:
        if form == config.weights:
            return form, config.dtype
    raise UsageError(f"weights {config.weights!r} is unknown: {', '.join(WEIGHT_FORMS)} or bf16")


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


def kv_dtype(name: str, device: torch.device) -> torch.dtype | None:
    """Of the cache; None: that of the activations. Errors: ``UsageError``."""
    if name == "auto":
        return None
    if name not in KV_DTYPES:
        raise UsageError(f"KV cache dtype {name!r} is unknown: auto, {', '.join(KV_DTYPES)}")
    if device.type == "cpu":
        raise UsageError(f"--kv-cache-dtype {name} needs a GPU: a CPU's cache is in --dtype")
    return KV_DTYPES[name]


def choose_backend(device: torch.device, dtype: torch.dtype, kv: torch.dtype | None) -> Selection:
    """The best one for activations of ``dtype``, which has to have a cache of ``kv`` (None: any).

    A cache in 8 bits is not worth a slower one. Errors: ``UsageError``.
    """
    try:
        best = select_backend(device, dtype)
        if kv is not None:
            select_backend(device, dtype, best.backend.name, kv)
        return best
    except ValueError as error:
        raise UsageError(str(error)) from error
