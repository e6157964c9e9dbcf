"""What torch and the kernels say about this machine: the part of ``pagedd doctor`` with torch.

Run as ``python -m pagedd.runtime.doctor DEVICE DTYPE KV_CACHE_DTYPE`` (each may be auto); prints a
JSON list of (verdict, subject, text) on standard output. Exit code 0 unless torch itself cannot be
used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch

from pagedd_kernels.backend import select_backend

Row = tuple[str, str, str]
LIBRARIES = ("transformers", "tokenizers", "safetensors", "gguf", "triton")


def findings(device: str, dtype: str, kv_cache_dtype: str = "auto") -> Iterator[Row]:
    """Rows of (ok, note or bad; subject; text)."""
    threads = torch.get_num_threads()
    yield "ok", "torch", f"{torch.__version__}, {threads} threads by default"
    yield "ok", "libraries", ", ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    yield from _devices(device)
    kinds = _wanted(device)
    for kind in kinds:
        yield from _backends(torch.device(kind), _dtype(dtype))
    if kinds and kv_cache_dtype != "auto":
        yield _cache(torch.device(kinds[0]), _dtype(dtype), kv_cache_dtype)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _devices(wanted: str) -> Iterator[Row]:
    if not torch.cuda.is_available():
        verdict = "bad" if wanted == "cuda" else "ok"
        built = torch.version.cuda
        why = "no driver or device" if built else "torch is built without CUDA"
        yield verdict, "device", f"cpu {_cpu()}; no GPU ({why})"
        return
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        capability = f"{found.major}.{found.minor}"
        memory = found.total_memory / (1 << 30)
        yield "ok", "device", f"cuda:{index} {found.name}, {capability}, {memory:.0f} GiB"


def _cpu() -> str:
    return str(torch.backends.cpu.get_cpu_capability())


def _wanted(device: str) -> list[str]:
    if device != "auto":
        return [device] if device != "cuda" or torch.cuda.is_available() else []
    return ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]


def _dtype(name: str) -> torch.dtype:
    """auto: what the CPU path and the GPUs are made for."""
    return torch.bfloat16 if name == "auto" else getattr(torch, name)


def _backends(device: torch.device, dtype: torch.dtype) -> Iterator[Row]:
    """The one chosen, and each that was preferred to it with its reason."""
    what = f"{device.type}, {str(dtype).removeprefix('torch.')}"
    try:
        selection = select_backend(device, dtype)
    except ValueError as error:
        yield "bad", "kernels", f"{what}: {error}"
        return
    yield "ok", "kernels", f"{what}: {selection.backend.name}"
    for name, reason in selection.refused:
        elsewhere = name == "triton" and device.type == "cpu"
        yield "ok" if elsewhere else "note", "kernels", f"{what}: not {name}: {reason}"


def _cache(device: torch.device, dtype: torch.dtype, name: str) -> Row:
    """Whether the device that start would take has the cache that was asked for."""
    from pagedd.errors import UsageError
    from pagedd.models.load import choose_backend, kv_dtype  # of what may be missing: only if asked

    try:
        choose_backend(device, dtype, kv_dtype(name, device))
    except UsageError as error:
        return "bad", "kv cache", str(error)
    return "ok", "kv cache", f"{device.type}: {name}"


if __name__ == "__main__":
    print(json.dumps(list(findings(*sys.argv[1:4]))))
