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
from pagedd_kernels.triton_.tuning import ARCHITECTURES, TABLE, Kind, Row, attention_tile

SHARED = {80: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}  # bytes a block may use; 99: sm_86, 89
REGISTERS_OF_SM = 65536
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
    """The most that a variant may take, and the instructions that it must have."""

    blocks: int  # of threads that a multiprocessor must have the registers for
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
        registers = REGISTERS_OF_SM // (self.launch.num_warps * 32 * self.limit.blocks)
        shared = SHARED[80 if self.architecture < 90 else self.architecture]
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
    found = []
    for row in TABLE:
        found += list(_of_row(row))
    for architecture in ARCHITECTURES:
        found += list(_others(architecture))
    found += list(_beside(TABLE))
    return found


def _of_row(row: Row) -> Iterator[Case]:
    """Decode rows in one pass and in splits, or many rows; with a window where it is common."""
    shape = _shape(row)
    name = f"{_short(shape.dtype)} {'' if row.kind != '8' else _short(shape.cache_dtype) + ' '}"
    name += f"d{row.head_dim} g{shape.num_heads // shape.num_kv_heads}"
    windows = (0, 1024) if (row.kind, row.head_dim) == ("16", 128) else (0,)
    splits = (1, 8) if row.kind == "16" else (8,)
    for window in windows:
        for split in splits if row.phase == "decode" else (1,):
            yield from _attention(row, shape, name, window, split)


def _beside(table: tuple[Row, ...]) -> Iterator[Case]:
    """Rows of the table for what they also serve: odd head sizes, float16, sm_89's float8."""
    for row in table:
        shape = _shape(row)
        wide = row.group > 16 and row.phase == "decode"
        if row.kind == "16" and row.head_dim == 128 and not wide:
            odd = replace(shape, head_dim=80, rope_dim=80)
            yield from _attention(row, odd, "bf16 d80 g4", 0, 1)
            half = replace(shape, dtype=torch.float16, cache_dtype=torch.float16)
            yield from _attention(row, half, "f16 d128 g4", 0, 1)
        if row.kind == "8" and row.head_dim == 128 and row.architecture == 80:
            e4m3 = replace(shape, cache_dtype=torch.float8_e4m3fn)
            yield from _attention(row._replace(architecture=89), e4m3, "bf16 e4m3 d128 g4", 0, 1)


def _attention(row: Row, shape: KernelShape, name: str, window: int, splits: int) -> Iterator[Case]:
    """The launches that have the row's tile."""
    rows_each = 1 if row.phase == "decode" else variants.LONG
    found = variants.attention(shape, window, row.architecture, 8, rows_each, splits)
    for kind, launch in found:
        limit = Limit(1)
        if launch.kernel is attention_kernel:
            sizes = (launch.arguments["BLOCK_M"], launch.arguments["BLOCK_N"])
            assert (*sizes, launch.num_warps, launch.num_stages) == row.tile, (name, row)
            limit = _limit(row)
        yield Case(row.architecture, f"{kind} {name}", launch, limit)


def _limit(row: Row) -> Limit:
    """Asynchronous copies always; tensor cores of the architecture's own kind where they pay."""
    return Limit(1, ("cp.async",))


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
    """The operations beside attention."""
    fp8 = torch.float8_e5m2 if architecture == 80 else torch.float8_e4m3fn
    shapes = {
        "bf16": TYPICAL,
        "bf16 norm": replace(TYPICAL, qk_norm=True),
        f"bf16 {_short(fp8)}": replace(TYPICAL, cache_dtype=fp8),
        "f32": replace(TYPICAL, dtype=torch.float32, cache_dtype=torch.float32),
    }
    seen: set[str] = set()
    for name, shape in shapes.items():
        for kind, launch in variants.others(shape):
            if launch.key() not in seen:
                seen.add(launch.key())
                yield Case(architecture, f"{kind} {name}", launch, Limit(2))


def _short(dtype: torch.dtype) -> str:
    """A dtype's short name."""
    names = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16", "float16": "f16"}
    return names.get(str(dtype).removeprefix("torch."), "f32")
