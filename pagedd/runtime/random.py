"""Counter-based random numbers: the n-th draw of a stream is a pure function of (key, n).

So a seeded text cannot depend on batch mates, on chunking or on a preemption. The mixing function
is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
Generators", 2014), applied twice so that neighbouring seeds give unrelated streams.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _mix(x: U64) -> U64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def stream_key(seed: int, *path: int) -> int:
    """The 64-bit key of the stream named by ``seed`` and a path of integers (choice, handle…)."""
    key = np.array([seed & _MASK], dtype=np.uint64)
    for part in (*path, 0):
        key = _mix(key + _GOLDEN) ^ np.uint64(part & _MASK)
    return int(_mix(key + _GOLDEN)[0])


def uniform(keys: U64, counters: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One uniform number in [0, 1) with 53 bits for each (key, counter).

    keys [rows] uint64, counters [rows] int64 → [rows] float64.
    """
    with np.errstate(over="ignore"):
        bits = _mix(_mix(keys + _GOLDEN * counters.astype(np.uint64)) + _GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
