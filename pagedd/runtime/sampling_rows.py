"""The sampling parameters of the running sequences, one row a slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pagedd.core.plan import Join
from pagedd.runtime.random import stream_key

if TYPE_CHECKING:
    from pagedd.runtime.grammar import Grammars, Guide

# At or below this temperature a draw could only ever give the arg-max: treat it as greedy, since
# dividing by it would overflow float32.
GREEDY_TEMPERATURE = 1e-5
# Above this share of the vocabulary a bias is added to a row as a whole: an addition by ids costs
# some thirty times as much for each of them.
DENSE_SHARE = 1 / 16
CPU = torch.device("cpu")


class Bias(NamedTuple):
    """What is added to logits: ``values`` at ``ids``, or where there are none, to the whole row.

    ``source``: what it was made of, as the choices of a request share it.
    """

    source: dict[int, float]
    ids: Tensor | None
    values: Tensor


class SamplingRows:
    """Arrays [max_num_seqs], written when a sequence joins and read by vector operations.

    Token counts for the penalties ([max_num_seqs, vocab]) are made when the first request asks for
    one: 200 kB a slot for a vocabulary of 50 k. Tensors are on ``device``, arrays on the host.
    """

    def __init__(
        self,
        *,
        max_num_seqs: int,
        vocab_size: int,
        eos_ids: frozenset[int],
        seed: int,
        device: torch.device = CPU,
        grammars: Grammars | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.grammars = grammars
        self._eos_ids = eos_ids
        self._seed = seed
        self.device = device
        self.greedy = np.ones(max_num_seqs, dtype=bool)
        self.temperature = np.ones(max_num_seqs, dtype=np.float32)
        self.top_p = np.ones(max_num_seqs, dtype=np.float32)
        self.top_k = np.zeros(max_num_seqs, dtype=np.int64)
        self.min_p = np.zeros(max_num_seqs, dtype=np.float32)
        self.presence = np.zeros(max_num_seqs, dtype=np.float32)
        self.frequency = np.zeros(max_num_seqs, dtype=np.float32)
        self.repetition = np.ones(max_num_seqs, dtype=np.float32)
        self.keys = np.zeros(max_num_seqs, dtype=np.uint64)
        self.num_logprobs = np.full(max_num_seqs, -1, dtype=np.int64)
        self.penalised = np.zeros(max_num_seqs, dtype=bool)
        self.filtered = np.zeros(max_num_seqs, dtype=bool)  # top-k, top-p or min-p
        self.min_len = np.zeros(max_num_seqs, dtype=np.int64)  # known tokens before an end is legal
        self.bias: dict[int, Bias] = {}  # by slot
        self.ends: dict[int, Tensor] = {}  # slot → ids masked until min_len
        self.guides: dict[int, Guide] = {}  # slot → where it stands in its grammar
        self.counts: Tensor | None = None  # [max_num_seqs, vocab] int32, generated tokens
        self.prompt_mask: Tensor | None = None  # [max_num_seqs, vocab] bool

    def join(self, join: Join) -> None:
        """Write the row of a sequence; its stream depends on the request alone, not on the slot."""
        slot, params = join.slot, join.params
        self.greedy[slot] = params.temperature <= GREEDY_TEMPERATURE or params.top_k == 1
        self.temperature[slot] = max(params.temperature, GREEDY_TEMPERATURE)
        self.top_p[slot] = params.top_p
        self.top_k[slot] = params.top_k if 0 < params.top_k < self.vocab_size else 0
        self.min_p[slot] = params.min_p
        self.filtered[slot] = self.top_k[slot] > 0 or params.top_p < 1.0 or params.min_p > 0.0
        self.presence[slot] = params.presence_penalty
        self.frequency[slot] = params.frequency_penalty
        self.repetition[slot] = params.repetition_penalty
        self.num_logprobs[slot] = -1 if params.logprobs is None else params.logprobs
        if params.seed is None:
            self.keys[slot] = stream_key(self._seed, 1, join.handle, join.index)
        else:
            self.keys[slot] = stream_key(params.seed, 0, join.index)
        self._join_bias(join)
        self._join_grammar(join)
        self.penalised[slot] = (
            params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
            or params.repetition_penalty != 1.0
        )
        if self.penalised[slot]:
            self._join_counts(join)

    def _join_bias(self, join: Join) -> None:
        slot, params = join.slot, join.params
        self.bias.pop(slot, None)
        if params.logit_bias:
            self.bias[slot] = self._bias_of(params.logit_bias)
        self.ends.pop(slot, None)
        self.min_len[slot] = join.num_prompt + params.min_tokens
        ends = set(params.stop_token_ids)
        if not params.ignore_eos:
            ends |= self._eos_ids
        if params.min_tokens and ends:
            self.ends[slot] = torch.tensor(sorted(ends), dtype=torch.int64).to(self.device)

    def _bias_of(self, given: dict[int, float]) -> Bias:
        for other in self.bias.values():
            if other.source is given:
                return other
        ids = torch.from_numpy(np.fromiter(given.keys(), np.int64, len(given)))
        values = torch.from_numpy(np.fromiter(given.values(), np.float32, len(given)))
        if len(given) <= self.vocab_size * DENSE_SHARE:
            return Bias(given, ids.to(self.device), values.to(self.device))
        row = torch.zeros(self.vocab_size)
        row[ids] = values
        return Bias(given, None, row.to(self.device))

    def _join_grammar(self, join: Join) -> None:
        self.guides.pop(join.slot, None)
        if join.params.grammar is not None:
            assert self.grammars is not None, "this runner has no grammars"
            generated = join.tokens[join.num_prompt :]
            self.guides[join.slot] = self.grammars.guide(
                join.params.grammar, generated, join.handle
            )

    def _join_counts(self, join: Join) -> None:
        if self.counts is None or self.prompt_mask is None:
            shape = (len(self.greedy), self.vocab_size)
            self.counts = torch.zeros(shape, dtype=torch.int32, device=self.device)
            self.prompt_mask = torch.zeros(shape, dtype=torch.bool, device=self.device)
        tokens = torch.tensor(join.tokens, dtype=torch.int64).to(self.device)
        prompt, generated = tokens[: join.num_prompt], tokens[join.num_prompt :]
        self.prompt_mask[join.slot].zero_()[prompt] = True
        self.counts[join.slot] = torch.bincount(generated, minlength=self.vocab_size)

    def leave(self, slot: int) -> None:
        """Forget what costs memory or time."""
        self.bias.pop(slot, None)
        self.ends.pop(slot, None)
        self.guides.pop(slot, None)
        self.penalised[slot] = False
        self.filtered[slot] = False
        self.greedy[slot] = True
        self.num_logprobs[slot] = -1
