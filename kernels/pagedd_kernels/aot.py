"""Compile every Triton kernel variant for GPUs that are not here: ``python -m pagedd_kernels.aot``.

Prints registers, shared memory, stack and spills of each variant and fails if one exceeds its
architecture. TRITON_INTERPRET must not be set. The launches are the backend's own, described over
tensors of the meta device, so what is compiled is what would run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.backends.nvidia
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pagedd_kernels.inputs import PagedInputs
from pagedd_kernels.triton_ import attention_launch, kv_write, pages, rows
from pagedd_kernels.triton_.attention import attention_kernel, merge_splits_kernel
from pagedd_kernels.triton_.launch import Launch, interpreted
from pagedd_kernels.triton_.tiles import ARCHITECTURES

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024}  # bytes a block may use
HEAD_SIZES = (64, 80, 128, 256)
DTYPES = (torch.bfloat16, torch.float32)
TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int64: "*i64",
    torch.int32: "*i32",
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled kernel and what it takes: registers a thread, bytes of the rest."""

    name: str
    architecture: int
    registers: int
    shared: int
    stack: int
    spills: int  # loads and stores to local memory in the machine code
    wgmma: bool
    cp_async: bool

    @property
    def fits(self) -> bool:
        """No stack, no spill, and shared memory that the architecture has."""
        return not self.stack and not self.spills and self.shared <= SHARED_LIMIT[self.architecture]


def variants(architecture: int) -> Iterator[tuple[str, Launch]]:
    """(name, launch) of what the backend would run there, for a group of 4 and pages of 16."""
    for dtype in DTYPES:
        short = str(dtype).removeprefix("torch.")
        for head_dim in HEAD_SIZES:
            for name, launch in _attention(architecture, head_dim, dtype):
                yield f"{name} {short} d{head_dim}", launch
        for name, launch in _others(dtype):
            yield f"{name} {short}", launch


def compile_variant(name: str, launch: Launch, architecture: int) -> Variant:
    """Compile one launch for sm_``architecture`` and read what it takes."""
    signature, constants, attributes = _signature(launch)
    compiled = triton.compile(
        ASTSource(launch.kernel, signature, constants, attributes),
        target=GPUTarget("cuda", architecture, 32),
        options=launch.options,
    )
    usage, code = _inspect(compiled.asm["cubin"])
    return Variant(
        name=name,
        architecture=architecture,
        registers=int(_field("REG", usage)),
        shared=compiled.metadata.shared,
        stack=int(_field("STACK", usage)),
        spills=len(re.findall(r"\b(?:LDL|STL)\b", code)),
        wgmma="wgmma" in compiled.asm["ptx"],
        cp_async="cp.async" in compiled.asm["ptx"],
    )


def _meta(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _inputs(num_decode: int, rows_each: int) -> PagedInputs:
    """Eight sequences, as many of them decode rows as said."""
    tokens = num_decode + (8 - num_decode) * rows_each
    return PagedInputs(
        positions=_meta(tokens, dtype=torch.int64),
        slots=_meta(tokens, dtype=torch.int64),
        cu_seqlens=_meta(9, dtype=torch.int32),
        seq_lens=_meta(8, dtype=torch.int32),
        page_table=_meta(8, 256, dtype=torch.int32),
        num_decode=num_decode,
        max_query_len=rows_each,
        max_seq_len=4096,
    )


def _attention(
    architecture: int, head_dim: int, dtype: torch.dtype
) -> Iterator[tuple[str, Launch]]:
    """Decode in one pass, decode in splits with the merge, prefill, prefill with a window."""
    cache = _meta(64, 2, 2, 2, 16, head_dim, dtype=dtype)
    cases = (
        ("decode", 8, 1, 1, 0),
        ("decode split", 8, 1, 8, 0),
        ("prefill", 0, 64, 1, 0),
        ("prefill window", 0, 64, 1, 1024),
    )
    for name, num_decode, rows_each, splits, window in cases:
        inputs = _inputs(num_decode, rows_each)
        qkv = _meta(inputs.positions.shape[0], 12, head_dim, dtype=dtype)
        launches, _ = attention_launch.paged_attention(
            qkv[:, :8],
            cache,
            1,
            inputs,
            scale=0.125,
            window=window,
            architecture=architecture,
            splits=splits,
        )
        for launch in launches:
            merges = launch.kernel is merge_splits_kernel
            yield ("merge" if merges else name), launch


def _others(dtype: torch.dtype) -> Iterator[tuple[str, Launch]]:
    """The operations beside attention, for a hidden size of 4096 and a head size of 128."""
    inputs = _inputs(8, 1)
    cache = _meta(64, 2, 2, 2, 16, 128, dtype=dtype)
    qkv = _meta(8, 12 * 128, dtype=dtype)
    rope = _meta(8, 128, dtype=torch.float32)
    norm = _meta(128, dtype=dtype)
    x, weight = _meta(8, 4096, dtype=dtype), _meta(4096, dtype=dtype)
    yield "kv_write", kv_write.kv_write(qkv, cache, 1, inputs, rope, None, None, 1e-6)[0]
    yield "kv_write norm", kv_write.kv_write(qkv, cache, 1, inputs, rope, norm, norm, 1e-6)[0]
    yield "rms_norm", rows.rms_norm(x, None, weight, 1e-6)[0]
    yield "add_rms_norm", rows.rms_norm(x, x, weight, 1e-6)[0]
    yield "silu_mul", rows.silu_mul(_meta(8, 2 * 14336, dtype=dtype))[0]
    yield "page_copy", pages.page_copy(cache, cache, _meta(4, 2, dtype=torch.int64))


def _signature(launch: Launch) -> tuple[dict[str, str], dict[str, Any], dict[Any, Any]]:
    """Types, constants and alignment as a launch would specialise them."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[Any, Any] = {}
    for parameter in launch.kernel.params:
        value = launch.arguments[parameter.name]
        plain = parameter.is_constexpr or value is None
        if plain or (type(value) is int and value == 1 and not parameter.do_not_specialize):
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
        elif isinstance(value, Tensor):
            signature[parameter.name] = TYPES[value.dtype]
            attributes[(parameter.num,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32"
            if value % 16 == 0 and not parameter.do_not_specialize:
                attributes[(parameter.num,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def _inspect(cubin: bytes) -> tuple[str, str]:
    """Resource usage and machine code of a kernel, as cuobjdump prints them."""
    tool = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage, code = (
            subprocess.run(
                [tool, option, file.name], capture_output=True, text=True, check=True
            ).stdout
            for option in ("-res-usage", "-sass")
        )
    return usage, code


def _field(name: str, usage: str) -> str:
    """The number after ``name:``."""
    found = re.search(rf"\b{name}:(\d+)", usage)
    assert found, usage
    return found[1]


def main(arguments: list[str]) -> int:
    """Print the table (``--json``: a list of objects); 1 if a variant does not fit."""
    if interpreted(attention_kernel):
        print("unset TRITON_INTERPRET: the interpreter compiles nothing", file=sys.stderr)
        return 2
    as_json = "--json" in arguments
    compiled = []
    for architecture in ARCHITECTURES:
        for name, launch in variants(architecture):
            variant = compile_variant(name, launch, architecture)
            compiled.append(variant)
            if not as_json:
                print(_line(variant), flush=True)
    if as_json:
        print(json.dumps([asdict(variant) | {"fits": variant.fits} for variant in compiled]))
    return 0 if all(variant.fits for variant in compiled) else 1


def _line(variant: Variant) -> str:
    """One row of the table."""
    notes = [note for note in ("wgmma", "cp_async") if getattr(variant, note)]
    return (
        f"sm_{variant.architecture}  {variant.name:28} {variant.registers:3} registers "
        f"{variant.shared / 1024:6.1f} KiB shared  stack {variant.stack}  spills {variant.spills}  "
        f"{'ok ' if variant.fits else 'BAD'} {' '.join(notes)}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
