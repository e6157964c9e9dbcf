"""Grammars beside other ways to sample: which tokens are drawn of a batch's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pagedd.core.plan import Join
from pagedd.core.request import SamplingParams
from pagedd.runtime.grammar import Grammars
from pagedd.runtime.masking import _expanded, masked_logits
from pagedd.runtime.sampler import Sampler, TorchDraws
from pagedd.runtime.sampling_rows import SamplingRows
from tests.runtime.grammars import WIDTH, grammars, text_dir, written
from tests.tiny.tokenizer import EOS, byte_id

__all__ = ["grammars", "text_dir"]  # fixtures


def test_the_sampler_draws_what_the_grammar_allows(grammars: Grammars) -> None:
    """Beside choices without one; log-probabilities stay those of the model."""
    rows = SamplingRows(
        max_num_seqs=4, vocab_size=WIDTH, eos_ids=frozenset({EOS}), seed=1, grammars=grammars
    )
    sampler = Sampler(rows, TorchDraws())
    ways: list[dict[str, Any]] = [{"temperature": 0.0}, {"seed": 3}, {"seed": 4, "top_p": 0.5}]
    for slot, way in enumerate(ways):
        params = SamplingParams(
            max_tokens=9, grammar=written(guided_choice=["xyz"]), logprobs=0, **way
        )
        sampler.join(Join(slot, slot, 0, (1, 2), 2, params, ()))
    free = SamplingParams(max_tokens=9, temperature=0.0)
    sampler.join(Join(3, 3, 0, (1, 2), 2, free, ()))
    logits = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(5))
    kept = logits.clone()
    for at, letter in enumerate("xyz"):
        drawn = sampler.sample(logits, range(4), np.full(4, 2 + at))
        assert [each.token for each in drawn[:3]] == [byte_id(ord(letter))] * 3
        assert drawn[3].token == int(logits[3].argmax())
        raw = logits[0].log_softmax(0)[drawn[0].token]
        assert drawn[0].logprobs is not None
        assert drawn[0].logprobs.logprob == pytest.approx(float(raw))
        assert torch.equal(logits, kept)
    drawn = sampler.sample(logits, range(4), np.full(4, 5))
    assert [each.token for each in drawn[:3]] == [EOS] * 3
    sampler.leave(0)
    assert 0 not in rows.guides


def test_a_row_without_valid_logits_draws_nothing(grammars: Grammars) -> None:
    rows = SamplingRows(
        max_num_seqs=3, vocab_size=WIDTH, eos_ids=frozenset({EOS}), seed=1, grammars=grammars
    )
    sampler = Sampler(rows, TorchDraws())
    for slot in range(3):
        params = SamplingParams(max_tokens=9, grammar=written(guided_choice=["x"]), seed=slot)
        sampler.join(Join(slot, slot, 0, (1,), 1, params, ()))
    logits = torch.zeros(3, WIDTH)
    logits[0, byte_id(ord("q"))] = torch.nan  # where the grammar forbids it
    logits[1, byte_id(ord("x"))] = -torch.inf  # all that it allows
    drawn = sampler.sample(logits, range(3), np.ones(3, dtype=np.int64))
    assert [each.token for each in drawn] == [-1, -1, byte_id(ord("x"))]


def test_masks_expand_on_a_device() -> None:
    masks = np.random.default_rng(1).integers(-(2**31), 2**31, (5, 11)).astype(np.int32)
    bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")[:, :340]
    assert torch.equal(_expanded(masks, torch.zeros(5, 340)), torch.from_numpy(bits == 1))


def test_rows_are_masked_where_they_are(grammars: Grammars) -> None:
    """``at`` says where, in a padded step."""
    rows = SamplingRows(
        max_num_seqs=3, vocab_size=WIDTH, eos_ids=frozenset({EOS}), seed=1, grammars=grammars
    )
    params = SamplingParams(max_tokens=9, grammar=written(guided_choice=["x"]))
    rows.join(Join(1, 1, 0, (1,), 1, params, ()))
    masked = masked_logits(rows, torch.zeros(4, WIDTH), np.array([0, 1]), np.array([3, 2]))
    assert masked.isfinite().sum(dim=1).tolist() == [WIDTH, WIDTH, 1, WIDTH]
