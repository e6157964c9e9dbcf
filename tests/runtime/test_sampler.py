"""The sampler against a plain reference that treats one row at a time."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from pagedd.core.plan import Join
from pagedd.core.request import SamplingParams
from pagedd.runtime.sampler import Sampler, TorchDraws
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.runtime.shaping import shaped_logits

VOCAB = 3000  # more than the shortlist, so that both of its branches run
EOS = 7


def make_sampler(slots: int = 16, vocab: int = VOCAB) -> Sampler:
    rows = SamplingRows(max_num_seqs=slots, vocab_size=vocab, eos_ids=frozenset({EOS}), seed=1234)
    return Sampler(rows, TorchDraws())


def join(
    slot: int, *, prompt: tuple[int, ...] = (1, 2, 3), out: tuple[int, ...] = (), **kw: Any
) -> Join:
    params = SamplingParams(max_tokens=100, **kw)
    return Join(slot, slot, 0, prompt + out, len(prompt), params, ())


def draw_row(logits: torch.Tensor, entry: Join, sampler: Sampler | None = None) -> int:
    sampler = sampler or make_sampler(vocab=logits.shape[-1])
    sampler.join(entry)
    [sampled] = sampler.sample(logits[None], [entry.slot], np.array([len(entry.tokens)]))
    return sampled.token


def kept_by_reference(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> set[int]:
    """Ids that may be drawn, by sorting and walking, as a person would write it down."""
    p = torch.softmax(logits.double() / temperature, 0)
    ids = [i for i in range(len(p)) if p[i] >= min_p * p.max() * (1 - 1e-6)]
    ids.sort(key=lambda i: -float(p[i]))
    if 0 < top_k < len(p):
        ids = ids[:top_k]
    if top_p < 1:
        total, kept, share = sum(float(p[i]) for i in ids), [], 0.0
        for i in ids:
            if share >= top_p * total:
                break
            kept.append(i)
            share += float(p[i])
        ids = kept
    return set(ids)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.7, 5, 1.0, 0.0),
        (1.0, 0, 0.9, 0.0),
        (1.0, 50, 0.5, 0.0),
        (1.3, 0, 1.0, 0.2),
        (0.9, 40, 0.8, 0.05),
        (2.0, 2000, 0.99, 0.0),  # top-k beyond the shortlist
        (100.0, 0, 0.9999, 0.0),  # a nucleus beyond the shortlist
        (1.0, VOCAB + 1, 1.0, 1.0),
        (1.0, 0, 1e-9, 0.0),
    ],
)
def test_filters_keep_exactly_the_reference_set(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    torch.manual_seed(3)
    logits = torch.randn(VOCAB) * 3
    sampler = make_sampler()
    entry = join(0, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=1)
    sampler.join(entry)
    seen: list[torch.Tensor] = []
    plain = sampler.draws

    class Spy(TorchDraws):
        def draw(self, logits: torch.Tensor, inv: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            seen.append(logits)
            return plain.draw(logits, inv, u)

    sampler.draws = Spy()
    [sampled] = sampler.sample(logits[None], [0], np.array([3]))
    expected = kept_by_reference(logits, temperature, top_k, top_p, min_p)
    kept = set(torch.isfinite(seen[0][0]).nonzero()[:, 0].tolist())
    # the border of a nucleus of thousands may move by rounding
    assert len(kept ^ expected) <= (2 if len(expected) > 1000 else 0)
    assert sampled.token in kept


def test_frequencies_follow_the_distribution() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5])
    sampler = make_sampler(slots=4000, vocab=5)
    for slot in range(4000):
        sampler.join(join(slot, prompt=(1,), seed=slot))
    drawn = sampler.sample(logits.expand(4000, 5), list(range(4000)), np.ones(4000, dtype=np.int64))
    counts = Counter(s.token for s in drawn)
    for token, p in enumerate(torch.softmax(logits, 0).tolist()):
        assert abs(counts[token] / 4000 - p) < 5 * math.sqrt(p * (1 - p) / 4000)


def test_greedy_takes_the_least_id_of_a_tie() -> None:
    logits = torch.zeros(VOCAB)
    logits[[5, 900, 2999]] = 4.0
    assert draw_row(logits, join(0, temperature=0.0)) == 5


@pytest.mark.parametrize(
    "kw", [{"temperature": 1e-9}, {"temperature": 1e-5}, {"top_k": 1}, {"top_p": 1e-9}]
)
def test_extreme_values_are_greedy(kw: dict[str, Any]) -> None:
    torch.manual_seed(0)
    logits = torch.randn(VOCAB)
    assert draw_row(logits, join(0, **({"temperature": 1.0, "seed": 9} | kw))) == int(
        logits.argmax()
    )


def test_off_values_of_top_k_are_one_and_the_same() -> None:
    torch.manual_seed(0)
    logits = torch.randn(VOCAB)
    tokens = {draw_row(logits, join(0, seed=5, top_k=k)) for k in (0, VOCAB, VOCAB + 1, 10**9)}
    assert len(tokens) == 1


def test_a_row_does_not_depend_on_its_mates() -> None:
    torch.manual_seed(1)
    logits = torch.randn(12, VOCAB)
    kinds: list[dict[str, Any]] = [
        {"seed": 1},
        {"seed": 2, "top_p": 0.9},
        {"temperature": 0.0},
        {"seed": 4, "top_k": 20, "min_p": 0.1},
        {"seed": 5, "frequency_penalty": 1.0, "out": (4, 4, 9)},
        {"seed": 6, "logit_bias": {3: 50.0}},
        {"seed": 7, "temperature": 100.0},
        {"temperature": 0.0, "repetition_penalty": 1.8, "out": (8,)},
        {"seed": 9, "logprobs": 3},
        {"seed": 10, "min_tokens": 5},
        {"seed": 11, "temperature": 1e-2},
        {"seed": 12, "top_p": 0.999, "temperature": 50.0},
    ]
    entries = [join(slot, **kw) for slot, kw in enumerate(kinds)]
    sampler = make_sampler()
    for entry in entries:
        sampler.join(entry)
    counts = np.array([len(entry.tokens) for entry in entries])
    together = sampler.sample(logits, list(range(12)), counts)
    for entry, sampled in zip(entries, together, strict=True):
        assert draw_row(logits[entry.slot], entry) == sampled.token


def test_nan_fails_its_row_alone() -> None:
    torch.manual_seed(2)
    logits = torch.randn(4, VOCAB)
    logits[1, 17] = torch.nan
    logits[3, :] = -torch.inf
    for kw in (
        {"temperature": 0.0},
        {"seed": 1},
        {"seed": 1, "top_p": 0.5},
        {"seed": 1, "min_p": 0.1},
    ):
        sampler = make_sampler()
        for slot in range(4):
            sampler.join(join(slot, **kw))
        tokens = [s.token for s in sampler.sample(logits, [0, 1, 2, 3], np.full(4, 3))]
        assert tokens[1] == tokens[3] == -1
        assert tokens[0] == draw_row(logits[0], join(0, **kw))
        assert tokens[2] >= 0


def test_penalties_follow_their_formulas() -> None:
    logits = torch.tensor([2.0, -1.0, 0.5, 3.0, 1.0, 0.0, 0.0, 0.0])
    entry = join(
        0,
        prompt=(0, 1),
        out=(3, 3, 2),
        temperature=0.0,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        repetition_penalty=2.0,
    )
    sampler = make_sampler(vocab=8)
    sampler.join(entry)
    shaped = shaped_logits(sampler.rows, logits[None], np.array([0]), np.array([5]))[0]
    # 0, 1 in the prompt; 3 twice and 2 once in the output
    expected = [1.0, -2.0, 0.25 - 0.25 - 0.5, 1.5 - 0.5 - 0.5, 1.0, 0.0, 0.0, 0.0]
    assert torch.allclose(shaped, torch.tensor(expected))


def test_counts_are_the_same_whether_generated_here_or_brought_back() -> None:
    torch.manual_seed(4)
    sampler = make_sampler(vocab=50)
    sampler.join(join(0, temperature=0.0, frequency_penalty=1.5))
    table = torch.randn(30, 50)
    out = [sampler.sample(table[s][None], [0], np.array([3 + s]))[0].token for s in range(30)]
    again = make_sampler(vocab=50)
    again.join(join(3, temperature=0.0, frequency_penalty=1.5, out=tuple(out[:17])))
    tail = [again.sample(table[s][None], [3], np.array([3 + s]))[0].token for s in range(17, 30)]
    assert tail == out[17:]


def test_min_tokens_forbids_every_end_until_then() -> None:
    logits = torch.zeros(20)
    logits[EOS], logits[9], logits[4] = 5.0, 4.0, 1.0
    early = join(0, temperature=0.0, min_tokens=2, stop_token_ids=(9,), out=(1,))
    assert draw_row(logits, early) == 4
    late = join(0, temperature=0.0, min_tokens=2, stop_token_ids=(9,), out=(1, 1))
    assert draw_row(logits, late) == EOS
    ignoring = join(0, temperature=0.0, min_tokens=2, stop_token_ids=(9,), ignore_eos=True)
    assert draw_row(logits, ignoring) == EOS


def test_bias_adds_and_every_token_may_be_biased() -> None:
    torch.manual_seed(5)
    logits = torch.randn(20)
    assert draw_row(logits, join(0, temperature=0.0, logit_bias={13: 100.0})) == 13
    flat = dict.fromkeys(range(20), -100.0)
    assert draw_row(logits, join(0, temperature=0.0, logit_bias=flat)) == int(logits.argmax())


def test_logprobs_are_those_of_the_raw_logits() -> None:
    torch.manual_seed(6)
    logits = torch.randn(2, VOCAB)
    sampler = make_sampler()
    sampler.join(join(0, temperature=0.0, logprobs=5, logit_bias={44: 100.0}))
    sampler.join(join(1, temperature=0.0))
    with_entry, without = sampler.sample(logits, [0, 1], np.full(2, 3))
    assert without.logprobs is None
    assert with_entry.token == 44
    assert with_entry.logprobs is not None
    table = torch.log_softmax(logits[0].double(), 0)
    assert with_entry.logprobs.logprob == pytest.approx(float(table[44]), abs=1e-5)
    values, ids = table.topk(5)
    assert [entry.token for entry in with_entry.logprobs.top] == ids.tolist()
    assert [e.logprob for e in with_entry.logprobs.top] == pytest.approx(values.tolist(), abs=1e-5)


def test_streams_repeat_with_a_seed_and_differ_without() -> None:
    logits = torch.zeros(VOCAB)
    seeded = [draw_row(logits, join(slot, seed=3)) for slot in (0, 4, 9)]
    assert len(set(seeded)) == 1
    sampler = make_sampler()
    free = [draw_row(logits, join(slot), sampler) for slot in range(8)]
    assert len(set(free)) > 1
