"""A bias of many tokens is one row to add, and the same for all choices of a request."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pagedd.core.plan import Join
from pagedd.core.request import SamplingParams
from pagedd.runtime.sampling_rows import DENSE_SHARE, SamplingRows
from pagedd.runtime.shaping import shaped_logits

VOCAB = 320
FEW = int(VOCAB * DENSE_SHARE)


def rows_with(*biases: dict[int, float]) -> SamplingRows:
    rows = SamplingRows(max_num_seqs=len(biases), vocab_size=VOCAB, eos_ids=frozenset({2}), seed=0)
    for slot, bias in enumerate(biases):
        params = SamplingParams(max_tokens=5, logit_bias=bias)
        rows.join(Join(slot, slot, 0, (1,), 1, params, ()))
    return rows


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, VOCAB])
def test_each_token_gets_its_own(count: int) -> None:
    rng = np.random.default_rng(count)
    ids = rng.permutation(VOCAB)[:count].tolist()
    bias = {id: float(value) for id, value in zip(ids, rng.normal(size=count), strict=True)}
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(count))
    logits[0, 7] = -torch.inf
    rows = rows_with(bias, {})
    shaped = shaped_logits(rows, logits, np.arange(2), np.ones(2, dtype=np.int64))
    expected = logits.clone()
    for id, value in bias.items():
        expected[0, id] += torch.tensor(value, dtype=torch.float32)
    assert torch.equal(shaped, expected)
    assert (rows.bias[0].ids is None) == (count > FEW)


def test_choices_share_what_their_request_asks_for() -> None:
    one = dict.fromkeys(range(VOCAB), 1.0)
    rows = rows_with(one, one, dict(one))
    assert rows.bias[0] is rows.bias[1]
    assert rows.bias[0] is not rows.bias[2]
    rows.leave(0)
    assert 0 not in rows.bias
    assert 1 in rows.bias
