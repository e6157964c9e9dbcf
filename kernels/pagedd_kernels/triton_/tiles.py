"""Tile choice, as a table: measured or compiled choices are data, nothing is tuned at run time."""

from __future__ import annotations

from typing import Literal, NamedTuple

Phase = Literal["decode", "prefill"]


class Tile(NamedTuple):
    """Rows (query · head of the group) and keys of one attention step, and how it is compiled."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


# (architecture, padded head size, phase, bytes per element). Every row compiles without spills
# and within the shared memory of its architecture: `python -m pagedd_kernels.aot` checks.
TILES: dict[tuple[int, int, Phase, int], Tile] = {
    (80, 64, "decode", 2): Tile(16, 64, 4, 3),
    (80, 64, "prefill", 2): Tile(64, 64, 4, 3),
    (80, 128, "decode", 2): Tile(16, 64, 4, 3),
    (80, 128, "prefill", 2): Tile(64, 32, 4, 3),
    (80, 256, "decode", 2): Tile(16, 32, 4, 3),
    (80, 256, "prefill", 2): Tile(64, 32, 8, 3),
    (80, 64, "decode", 4): Tile(16, 32, 4, 3),
    (80, 64, "prefill", 4): Tile(32, 32, 4, 3),
    (80, 128, "decode", 4): Tile(16, 32, 4, 3),
    (80, 128, "prefill", 4): Tile(32, 32, 8, 3),
    (80, 256, "decode", 4): Tile(16, 16, 4, 3),
    (80, 256, "prefill", 4): Tile(16, 16, 4, 3),
    (90, 64, "decode", 2): Tile(16, 64, 4, 3),
    (90, 64, "prefill", 2): Tile(64, 64, 4, 3),
    (90, 128, "decode", 2): Tile(16, 64, 4, 3),
    (90, 128, "prefill", 2): Tile(64, 64, 4, 3),
    (90, 256, "decode", 2): Tile(16, 32, 4, 3),
    (90, 256, "prefill", 2): Tile(64, 32, 8, 3),
    (90, 64, "decode", 4): Tile(16, 16, 4, 3),
    (90, 64, "prefill", 4): Tile(32, 32, 4, 3),
    (90, 128, "decode", 4): Tile(16, 16, 4, 3),
    (90, 128, "prefill", 4): Tile(32, 32, 8, 3),
    (90, 256, "decode", 4): Tile(16, 16, 4, 3),
    (90, 256, "prefill", 4): Tile(16, 16, 4, 3),
}
ARCHITECTURES = (80, 90)
HEAD_SIZES = (64, 128, 256)
MAX_SPLITS = 32
KEYS_PER_SPLIT = 256  # below this the merge costs more than the longer loop


def attention_tile(architecture: int, head_dim: int, phase: Phase, element_size: int) -> Tile:
    """The tile for a device of ``architecture`` (90: sm_90), by the next smaller one known."""
    known = max((a for a in ARCHITECTURES if a <= architecture), default=ARCHITECTURES[0])
    size = next((s for s in HEAD_SIZES if head_dim <= s), HEAD_SIZES[-1])
    return TILES[known, size, phase, element_size]


def decode_splits(programs: int, processors: int, max_keys: int) -> int:
    """Into how many parts the keys of a decode row are split, a power of two.

    Enough to give each of the device's multiprocessors two programs when ``programs`` (rows · KV
    heads) alone do not, but no part shorter than ``KEYS_PER_SPLIT`` of at most ``max_keys`` keys.
    """
    wanted = min(2 * processors // max(programs, 1), max_keys // KEYS_PER_SPLIT, MAX_SPLITS)
    return 1 << (max(wanted, 1) - 1).bit_length()
