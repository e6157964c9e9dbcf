"""CPU backends of every instruction set that runs here, for the CPU kernels' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.cpu.library import load_library

NEEDED = {
    "native": set(),
    "generic": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512bf16": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16"},
}


def _features() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def backend_of(isa: str, threads: int = 2) -> CpuBackend:
    """A backend, or a skip where this machine has no compiler or not the instructions."""
    if not NEEDED[isa] <= _features():
        pytest.skip(f"this processor has no {isa}")
    library = load_library(isa)
    if isinstance(library, str):
        pytest.skip(library)
    return CpuBackend(threads=threads, isa=isa)
