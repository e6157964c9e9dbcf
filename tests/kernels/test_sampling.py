"""The kernels' specification of sampling says what the runtime's sampler says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagedd.runtime.filters import threshold as runtime_threshold
from pagedd.runtime.random import stream_key
from pagedd.runtime.random import uniform as runtime_uniform
from pagedd.runtime.sampler import TorchDraws
from pagedd_kernels.inputs import SamplingInputs
from pagedd_kernels.sampling import sample, threshold, uniform

ROWS, VOCAB = 24, 3000


@pytest.fixture
def streams() -> tuple[np.ndarray, np.ndarray]:
    """Keys [ROWS] uint64, half of them with the highest bit, and counters [ROWS] int64."""
    keys = np.array([stream_key(seed, 1) for seed in range(ROWS)], dtype=np.uint64)
    assert 0 < (keys >> np.uint64(63)).sum() < ROWS
    return keys, np.arange(ROWS) * 1001


def parameters(keys: torch.Tensor, counters: torch.Tensor) -> SamplingInputs:
    """All combinations of a few values, one a row."""
    k, p, m = np.meshgrid([0, 1, 7, 2999], [1.0, 0.9, 0.3], [0.0, 0.05], indexing="ij")
    temperature = torch.linspace(0.3, 2.0, ROWS)
    return SamplingInputs(
        inverse_temperature=1.0 / temperature,
        top_k=torch.from_numpy(k.ravel()).to(torch.int32),
        top_p=torch.from_numpy(p.ravel()).float(),
        min_p=torch.from_numpy(m.ravel()).float(),
        keys=keys,
        counters=counters,
    )


def test_the_same_numbers(streams: tuple[np.ndarray, np.ndarray]) -> None:
    keys, counters = streams
    found = uniform(torch.from_numpy(keys.view(np.int64)), torch.from_numpy(counters))
    assert found.tolist() == runtime_uniform(keys, counters).tolist()


@pytest.mark.parametrize("rounded", [False, True])
def test_the_same_cut_and_the_same_tokens(
    streams: tuple[np.ndarray, np.ndarray], rounded: bool
) -> None:
    keys, counters = streams
    torch.manual_seed(0)
    logits = 3.0 * torch.randn(ROWS, VOCAB)
    if rounded:
        logits = logits.round()  # many equals at every cut
    inputs = parameters(torch.from_numpy(keys.view(np.int64)), torch.from_numpy(counters))
    scaled = logits * inputs.inverse_temperature[:, None]
    least = runtime_threshold(scaled, inputs.top_k.long(), inputs.top_p, inputs.min_p)
    assert torch.equal(scaled >= threshold(scaled, inputs)[:, None], scaled >= least[:, None])
    kept = logits.masked_fill(scaled < least[:, None], -torch.inf)
    u = torch.from_numpy(runtime_uniform(keys, counters))
    expected = TorchDraws().draw(kept, inputs.inverse_temperature, u)
    assert sample(logits, inputs).tolist() == expected.tolist()
