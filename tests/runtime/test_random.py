"""The counter-based generator."""

import numpy as np

from pagedd.runtime.random import stream_key, uniform


def test_a_draw_depends_on_key_and_counter_alone() -> None:
    keys = np.array([stream_key(s) for s in range(16)], dtype=np.uint64)
    counters = np.arange(16, dtype=np.int64) * 7
    together = uniform(keys, counters)
    alone = [uniform(keys[i : i + 1], counters[i : i + 1])[0] for i in range(16)]
    assert together.tolist() == alone
    assert len(set(alone)) == 16


def test_uniform_in_mean_range_and_between_neighbours() -> None:
    n = 200_000
    keys = np.full(n, stream_key(42), dtype=np.uint64)
    u = uniform(keys, np.arange(n, dtype=np.int64))
    assert 0.0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1.0
    # standard error of a mean of n uniforms is 0.29 / sqrt(n)
    assert abs(u.mean() - 0.5) < 5 * 0.29 / n**0.5
    counts, _ = np.histogram(u, bins=100, range=(0, 1))
    assert ((counts - n / 100) ** 2 / (n / 100)).sum() < 180  # chi-square, 99 degrees of freedom
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.015


def test_streams_of_neighbouring_seeds_and_choices_are_unrelated() -> None:
    n = 20_000
    counters = np.arange(n, dtype=np.int64)
    names = [(0,), (1,), (2,), (-1,), (2**63 - 1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    keys = [stream_key(*name) for name in names]
    assert len(set(keys)) == len(keys)
    rows = [uniform(np.full(n, key, dtype=np.uint64), counters) for key in keys]
    table = np.corrcoef(rows)
    assert np.abs(table - np.eye(len(rows))).max() < 0.04
