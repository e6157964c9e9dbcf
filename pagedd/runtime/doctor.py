"""What torch and the kernels say about this machine: the part of ``pagedd doctor`` with torch.

Run as ``python -m pagedd.runtime.doctor DEVICE DTYPE`` (both may be auto); prints a JSON list of
(verdict, subject, text) on standard output. Exit code 0 unless torch itself cannot be used.
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


def findings(device: str, dtype: str) -> Iterator[Row]:
    """Rows of (ok, note or bad; subject; text)."""
    threads = torch.get_num_threads()
    yield "ok", "torch", f"{torch.__version__}, {threads} threads by default"
    yield "ok", "libraries", ", ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    yield from _devices(device)
    for kind in _wanted(device):
        yield from _backends(torch.device(kind), _dtype(dtype))


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


if __name__ == "__main__":
    print(json.dumps(list(findings(*sys.argv[1:3]))))
