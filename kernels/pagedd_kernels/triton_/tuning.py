"""Tile choice, as a table: choices are data in the tree, and nothing is tuned at run time."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from pagedd_kernels.inputs import FP8

Phase = Literal["decode", "prefill"]
Kind = Literal["16", "8", "32"]  # bits of the activations and the cache; 8: activations have 16
ANY = 1 << 30


class Tile(NamedTuple):
    """Rows (query · head of the group) and keys of one attention step, and how it is compiled."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


class Row(NamedTuple):
    """Where a tile holds: sizes up to the ones named; ``batch`` is sequences of the launch."""

    architecture: int
    kind: Kind
    phase: Phase
    head_dim: int
    tile: Tile
    group: int = 16
    page_size: int = ANY
    batch: int = ANY


# The first row that fits is taken. Every row compiles without spills and within the shared memory
# of its architecture: `python -m pagedd_kernels.aot` checks that. K and V wait for the load of the
# page table, so 3 stages give one buffer beside the one computed with, 5 give two.
_OF_80 = (
    Row(80, "16", "decode", 64, Tile(16, 64, 4, 3)),
    Row(80, "16", "decode", 128, Tile(16, 64, 4, 3)),
    Row(80, "16", "decode", 256, Tile(16, 32, 4, 3)),
    Row(80, "16", "decode", 128, Tile(32, 32, 4, 3), group=32),
    Row(80, "16", "prefill", 64, Tile(64, 64, 4, 3), group=64),
    Row(80, "16", "prefill", 128, Tile(64, 32, 4, 3), group=64),
    Row(80, "16", "prefill", 256, Tile(64, 32, 8, 3), group=64),
    Row(80, "8", "decode", 64, Tile(16, 64, 4, 3)),
    Row(80, "8", "decode", 128, Tile(16, 32, 4, 5)),
    Row(80, "8", "decode", 256, Tile(16, 16, 4, 3)),
    Row(80, "8", "prefill", 64, Tile(64, 64, 4, 3), group=64),
    Row(80, "8", "prefill", 128, Tile(64, 32, 4, 3), group=64),
    Row(80, "8", "prefill", 256, Tile(64, 32, 8, 3), group=64),
    Row(80, "32", "decode", 64, Tile(16, 32, 4, 3)),
    Row(80, "32", "decode", 128, Tile(16, 16, 4, 3)),
    Row(80, "32", "decode", 256, Tile(16, 16, 4, 3)),
    Row(80, "32", "prefill", 64, Tile(32, 32, 4, 3), group=32),
    Row(80, "32", "prefill", 128, Tile(32, 32, 8, 3), group=32),
    Row(80, "32", "prefill", 256, Tile(16, 16, 4, 3)),
)
_OF_90 = (
    Row(90, "16", "decode", 64, Tile(16, 64, 4, 5)),
    Row(90, "16", "decode", 128, Tile(16, 64, 4, 5)),
    Row(90, "16", "decode", 256, Tile(16, 32, 4, 5)),
    Row(90, "16", "decode", 128, Tile(32, 64, 4, 3), group=32),
    Row(90, "16", "prefill", 64, Tile(64, 64, 4, 3), group=64),
    Row(90, "16", "prefill", 128, Tile(64, 64, 4, 3), group=64),
    Row(90, "16", "prefill", 256, Tile(64, 32, 8, 3), group=64),
    Row(90, "8", "decode", 64, Tile(16, 64, 4, 5)),
    Row(90, "8", "decode", 128, Tile(16, 64, 4, 5)),
    Row(90, "8", "decode", 256, Tile(16, 32, 4, 5)),
    Row(90, "8", "prefill", 64, Tile(64, 64, 4, 3), group=64),
    Row(90, "8", "prefill", 128, Tile(64, 64, 4, 3), group=64),
    Row(90, "8", "prefill", 256, Tile(64, 32, 8, 3), group=64),
    Row(90, "32", "decode", 64, Tile(16, 16, 4, 3)),
    Row(90, "32", "decode", 128, Tile(16, 16, 4, 3)),
    Row(90, "32", "decode", 256, Tile(16, 16, 4, 3)),
    Row(90, "32", "prefill", 64, Tile(32, 32, 4, 3), group=32),
    Row(90, "32", "prefill", 128, Tile(32, 32, 8, 3), group=32),
    Row(90, "32", "prefill", 256, Tile(16, 16, 4, 3)),
)
TABLE = (*_OF_80, *_OF_90, *(row._replace(architecture=100) for row in _OF_90))
ARCHITECTURES = (80, 90, 100)
MAX_HEAD_DIM = 256
MAX_SPLITS = 32
KEYS_PER_SPLIT = 256  # below this the merge costs more than the longer loop
FP8_E4M3_SINCE = 89  # architecture: the first with conversions of float8_e4m3fn


def kind_of(dtype: torch.dtype, cache_dtype: torch.dtype) -> Kind:
    """The table's name of activations of ``dtype`` beside such a cache."""
    if cache_dtype in FP8:
        return "8"
    return "32" if dtype == torch.float32 else "16"


def family(architecture: int) -> int:
    """The architecture of the table whose tiles a device of ``architecture`` (89: sm_89) gets.

    Only the data-centre chips have the shared memory of 90 and 100; what else there is (86, 89,
    120, …) has 99 KiB, which the rows of 80 keep to.
    """
    return next((a for a in (90, 100) if a <= architecture < a + 10), 80)


def attention_tile(
    architecture: int,
    kind: Kind,
    phase: Phase,
    head_dim: int,
    *,
    group: int,
    page_size: int,
    batch: int,
) -> Tile:
    """The first row of the table that fits; rows widened for groups that none is made for.

    Raises ValueError for a ``head_dim`` of more than ``MAX_HEAD_DIM``.
    """
    if head_dim > MAX_HEAD_DIM:
        raise ValueError(f"no tile is made for heads of {head_dim} values: at most {MAX_HEAD_DIM}")
    known = family(architecture)
    rows = [
        row
        for row in TABLE
        if (row.architecture, row.kind, row.phase) == (known, kind, phase)
        and head_dim <= row.head_dim
    ]
    for row in rows:
        if group <= row.group and page_size <= row.page_size and batch <= row.batch:
            return row.tile
    widest = rows[0].tile
    return widest._replace(block_m=max(widest.block_m, 1 << (group - 1).bit_length()))


def decode_splits(programs: int, processors: int, max_keys: int) -> int:
    """Into how many parts the keys of a decode row are split, a power of two.

    Enough to give each of the device's multiprocessors two programs when ``programs`` (rows · KV
    heads) alone do not, but no part shorter than ``KEYS_PER_SPLIT`` of at most ``max_keys`` keys.
    """
    wanted = min(2 * processors // max(programs, 1), max_keys // KEYS_PER_SPLIT, MAX_SPLITS)
    return 1 << (max(wanted, 1) - 1).bit_length()
