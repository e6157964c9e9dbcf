"""Compiles launches for GPUs that are not here, and reads from the machine code what they take."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import triton
import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pagedd_kernels.triton_.launch import Launch

# Instructions of the machine code (SASS) by what they are for
INSTRUCTIONS = {
    "cp.async": r"LDGSTS",  # global to shared memory without a register
    "tma": r"UTMALDG",
    "ldmatrix": r"LDSM",
    "mma.sync": r"[HI]MMA|QMMA|OMMA",
    "wgmma": r"[HIQ]GMMA",
    "tcgen05": r"UTC[HQIO]MMA",
    "ld.128": r"LDG\.\S*128|LDG\.E\S*\.128",
    "fp64": r"D(?:ADD|MUL|FMA|SETP)",
}
SPILL = r"LDL|STL"  # local memory: what registers did not hold


@dataclass(frozen=True, slots=True)
class Usage:
    """What one compiled kernel takes: registers a thread, bytes of the rest a block."""

    registers: int
    shared: int
    stack: int
    spills: int  # loads and stores of local memory in the machine code
    instructions: tuple[str, ...]  # the kinds of ``INSTRUCTIONS`` that occur


class UsageCache:
    """Usages by what was compiled, in a folder that may be deleted at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, launch: Launch, architecture: int) -> Usage | None:
        """What ``measure`` gave for the same source, specialisation, options and compiler."""
        try:
            stored = json.loads(self._path(launch, architecture).read_bytes())
            return Usage(**stored | {"instructions": tuple(stored["instructions"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None  # not there, or not ours: measured again

    def keep(self, launch: Launch, architecture: int, usage: Usage) -> None:
        """Store it; readers see all of it or nothing."""
        path = self._path(launch, architecture)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as file:
            json.dump(asdict(usage), file)
        os.replace(file.name, path)

    def _path(self, launch: Launch, architecture: int) -> Path:
        """The hash of the source covers the functions that the kernel calls."""
        parts = (
            _source(launch).hash(),
            launch.options,
            architecture,
            triton.__version__,
            INSTRUCTIONS,
            SPILL,
        )
        return self._folder / (hashlib.sha256(repr(parts).encode()).hexdigest() + ".json")


def measure(launch: Launch, architecture: int) -> Usage:
    """Compile a launch for sm_``architecture`` and read what it takes."""
    target = GPUTarget("cuda", architecture, 32)
    compiled = triton.compile(_source(launch), target=target, options=launch.options)
    code = _inspect(compiled.asm["cubin"])
    return Usage(
        registers=_field("REG", code),
        shared=compiled.metadata.shared,
        stack=_field("STACK", code),
        spills=len(re.findall(rf"\b(?:{SPILL})\b", code)),
        instructions=kinds(code, INSTRUCTIONS),
    )


def kinds(code: str, patterns: Mapping[str, str]) -> tuple[str, ...]:
    """Which kinds of instructions the machine code has."""
    return tuple(kind for kind, pattern in patterns.items() if re.search(rf"\b(?:{pattern})", code))


def _source(launch: Launch) -> ASTSource:
    return ASTSource(launch.kernel, *launch.specialisation())


def _inspect(cubin: bytes) -> str:
    """Resource usage and machine code of a kernel, as cuobjdump prints them."""
    tool = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run(
            [tool, "-res-usage", "-sass", file.name], capture_output=True, text=True, check=True
        ).stdout


def _field(name: str, usage: str) -> int:
    """The number after ``name:``."""
    found = re.search(rf"\b{name}:(\d+)", usage)
    assert found, usage
    return int(found[1])
