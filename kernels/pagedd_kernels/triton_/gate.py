"""Which variants the ahead-of-time check compiles, and what each may take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from pagedd_kernels.graph_backend import KernelShape
from pagedd_kernels.triton_ import variants
from pagedd_kernels.triton_.attention import attention_kernel
from pagedd_kernels.triton_.compiled import Usage
from pagedd_kernels.triton_.launch import Launch
from pagedd_kernels.triton_.tuning import (
    ARCHITECTURES,
    FP8_E4M3_SINCE,
    TABLE,
    Kind,
    Row,
    attention_tile,
    family,
)

# Bytes a block may use, and a multiprocessor has; in the family of 80 those of sm_86 and sm_89
SHARED = {80: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}
SHARED_OF_SM = {80: 100 * 1024, 90: 228 * 1024, 100: 228 * 1024}
RESERVED = 1024  # of a block's shared memory, by the driver
REGISTERS_OF_SM = 65536
PREFILL = {80: "mma.sync", 90: "wgmma", 100: "tcgen05"}  # the fastest products of each family
DTYPES: dict[Kind, torch.dtype] = {
    "16": torch.bfloat16,
    "8": torch.bfloat16,
    "32": torch.float32,
}
TYPICAL = KernelShape(
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    rope_dim=128,
    hidden_size=4096,
    intermediate_size=14336,
    vocab_size=128256,
    page_size=16,
    max_num_seqs=64,
    max_model_len=32768,
    windows=frozenset({0}),
    rope_layers=frozenset({True}),
    qk_norm=False,
    dtype=torch.bfloat16,
    cache_dtype=torch.bfloat16,
)


class Limit(NamedTuple):
    """What a variant must leave room for, and the instructions that it must have."""

    blocks: int  # of threads at a time on a multiprocessor, by registers and shared memory
    instructions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One variant to compile for sm_``architecture``."""

    architecture: int
    name: str
    launch: Launch
    limit: Limit

    def faults(self, usage: Usage) -> list[str]:
        """What exceeds its limit, in words; empty if all is well."""
        known = family(self.architecture)
        registers = REGISTERS_OF_SM // (self.launch.num_warps * 32 * self.limit.blocks)
        shared = min(SHARED[known], SHARED_OF_SM[known] // self.limit.blocks - RESERVED)
        found = []
        if usage.stack:
            found.append(f"{usage.stack} bytes of stack")
        if usage.spills:
            found.append(f"{usage.spills} spills")
        if usage.registers > registers:
            found.append(f"{usage.registers} registers, {registers} allowed")
        if usage.shared > shared:
            found.append(f"{usage.shared} bytes shared, {shared} allowed")
        found += [
            f"no {kind}" for kind in self.limit.instructions if kind not in usage.instructions
        ]
        return found


def cases() -> list[Case]:
    """Every row of the tuning table, and every other kernel for each architecture."""
    found = [case for row in TABLE for case in of_row(row)]
    found += [case for row in TABLE for case in _beside(row)]
    found += [case for architecture in ARCHITECTURES for case in _others(architecture)]
    return found


def of_row(row: Row) -> Iterator[Case]:
    """Decode rows in splits, or many rows; in one pass or with a window for common sizes."""
    shape = _shape(row)
    name = _short(shape.dtype) if row.kind != "8" else f"bf16 {_short(shape.cache_dtype)}"
    name += f" d{row.head_dim} g{shape.num_heads // shape.num_kv_heads}"
    common = (row.kind, row.head_dim) == ("16", 128) and row.group != 32
    if row.phase == "decode":
        yield from _attention(row, shape, name, 0, 8)
        if common:
            yield from _attention(row, shape, name, 0, 1)
    else:
        yield from _attention(row, shape, name, 0, 1)
        if common:
            yield from _attention(row, shape, name, 1024, 1)


def _beside(row: Row) -> Iterator[Case]:
    """What a row of the table also serves: odd head sizes, float16, the float8 of sm_89."""
    shape = _shape(row)
    if row.head_dim != 128 or shape.num_heads != TYPICAL.num_heads:
        return
    if row.kind == "16":
        odd = replace(shape, head_dim=80, rope_dim=80)
        yield from _attention(row, odd, "bf16 d80 g4", 0, 1)
    if row.kind == "16" and row.architecture == 90:
        half = replace(shape, dtype=torch.float16, cache_dtype=torch.float16)
        yield from _attention(row, half, "f16 d128 g4", 0, 1)
    if row.kind == "8" and row.architecture == 80:
        e4m3 = replace(shape, cache_dtype=torch.float8_e4m3fn)
        later = row._replace(architecture=FP8_E4M3_SINCE)
        yield from _attention(later, e4m3, "bf16 e4m3 d128 g4", 0, 1)


def _attention(row: Row, shape: KernelShape, name: str, window: int, splits: int) -> Iterator[Case]:
    """The launches that have the row's tile, and in 16 bits the merge of splits."""
    rows_each = 1 if row.phase == "decode" else variants.LONG
    found = variants.attention(shape, window, row.architecture, 8, rows_each, splits)
    for kind, launch in found:
        if launch.kernel is attention_kernel:
            sizes = (launch.arguments["BLOCK_M"], launch.arguments["BLOCK_N"])
            assert (*sizes, launch.num_warps, launch.num_stages) == row.tile, (name, row)
            yield Case(row.architecture, f"{kind} {name}", launch, _limit(row))
        elif row.kind == "16" and row.group == 16:
            yield Case(row.architecture, f"{kind} {name}", launch, Limit(4, ("ld.128",)))


def _limit(row: Row) -> Limit:
    """Asynchronous copies, and the tensor cores of the architecture where float32 is not asked for.

    Decode rows wait for memory: several blocks must be there at a time to keep it busy.
    """
    wanted = ["cp.async", "ld.128"]
    if row.kind != "32":
        wanted.append("mma.sync" if row.phase == "decode" else PREFILL[family(row.architecture)])
    if row.phase == "prefill" or row.kind == "32":
        return Limit(1, tuple(wanted))
    common = row.kind == "16" and row.group == 16 and row.architecture >= 90
    return Limit(3 if common else 2, tuple(wanted))


def _shape(row: Row) -> KernelShape:
    """A model that gets the row's tile: a group of 4, or the widest where that has another row."""
    dtype = cache_dtype = DTYPES[row.kind]
    if row.kind == "8":
        cache_dtype = torch.float8_e5m2 if row.architecture == 80 else torch.float8_e4m3fn
    for group in (4, row.group):
        tile = attention_tile(
            row.architecture, row.kind, row.phase, row.head_dim, group=group, page_size=16, batch=8
        )
        if tile == row.tile:
            break
    return replace(
        TYPICAL,
        head_dim=row.head_dim,
        rope_dim=row.head_dim,
        num_heads=8 * group,
        dtype=dtype,
        cache_dtype=cache_dtype,
    )


def _others(architecture: int) -> Iterator[Case]:
    """The operations beside attention; those in float32 have the same code everywhere."""
    fp8 = torch.float8_e5m2 if architecture == 80 else torch.float8_e4m3fn
    shapes = {
        "bf16": TYPICAL,
        "bf16 norm": replace(TYPICAL, qk_norm=True),
        f"bf16 {_short(fp8)}": replace(TYPICAL, cache_dtype=fp8),
    }
    if architecture == ARCHITECTURES[0]:
        shapes["f32"] = replace(TYPICAL, dtype=torch.float32, cache_dtype=torch.float32)
    seen: set[str] = set()
    for name, shape in shapes.items():
        for kind, launch in variants.others(shape):
            if launch.key() not in seen:
                seen.add(launch.key())
                wide = () if kind == "sample" else ("ld.128",)
                yield Case(architecture, f"{kind} {name}", launch, Limit(2, wide))


def _short(dtype: torch.dtype) -> str:
    """A dtype's short name."""
    names = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16", "float16": "f16"}
    return names.get(str(dtype).removeprefix("torch."), "f32")
