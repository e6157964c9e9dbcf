"""A paged cache with shuffled pages, driven by hand: what the runner does, in a few lines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel, load_model
from pagedd_kernels.inputs import PagedInputs


def load(model: Path | str, **options: Any) -> LoadedModel:
    """Load on the CPU, float32 unless said otherwise."""
    config = {"device": "cpu", "dtype": "float32", **options}
    return load_model(EngineConfig(model=str(model), **config), lambda phase, fraction: None)


@dataclass
class Held:
    """A sequence: tokens computed so far, the length of the prompt and the pages held."""

    prompt_len: int
    pages: list[int] = field(default_factory=list)
    computed: int = 0


class Paged:
    """Sequences of one model in one cache; free pages hold NaN, so that reading one shows."""

    def __init__(self, loaded: LoadedModel, *, page_size: int = 4, num_pages: int = 96) -> None:
        spec = loaded.spec
        self.loaded = loaded
        self.page_size = page_size
        shape = (num_pages, spec.num_layers, 2, spec.num_kv_heads, page_size, spec.head_dim)
        self.cache = torch.full(shape, float("nan"), dtype=spec.cache_dtype)
        self.free = list(range(num_pages))
        random.Random(7).shuffle(self.free)

    def step(self, rows: Sequence[tuple[Held, Sequence[int]]]) -> list[Tensor]:
        """Compute the next tokens of each sequence → its logits ``[tokens, vocab]``.

        Sequences with one token must come first.
        """
        inputs = self.inputs([(sequence, len(tokens)) for sequence, tokens in rows])
        ids = torch.tensor([token for _, tokens in rows for token in tokens])
        prompts = torch.tensor([s.prompt_len for s, _ in rows], dtype=torch.int32)
        model = self.loaded.model
        logits = model.logits(model.forward(ids, inputs, self.cache, prompts))
        return list(logits.split([len(tokens) for _, tokens in rows]))

    def inputs(self, rows: list[tuple[Held, int]]) -> PagedInputs:
        """Take the pages for ``count`` more tokens of each sequence and describe the step."""
        positions: list[int] = []
        slots: list[int] = []
        for sequence, count in rows:
            end = sequence.computed + count
            while len(sequence.pages) * self.page_size < end:
                sequence.pages.append(self.free.pop())
            for position in range(sequence.computed, end):
                page = sequence.pages[position // self.page_size]
                positions.append(position)
                slots.append(page * self.page_size + position % self.page_size)
            sequence.computed = end
        counts = [count for _, count in rows]
        widest = max(len(sequence.pages) for sequence, _ in rows)
        table = [s.pages + [0] * (widest - len(s.pages)) for s, _ in rows]
        lengths = [sequence.computed for sequence, _ in rows]
        return PagedInputs(
            positions=torch.tensor(positions),
            slots=torch.tensor(slots),
            cu_seqlens=torch.tensor([0, *counts]).cumsum(0).to(torch.int32),
            seq_lens=torch.tensor(lengths, dtype=torch.int32),
            page_table=torch.tensor(table, dtype=torch.int32),
            num_decode=next((i for i, count in enumerate(counts) if count > 1), len(counts)),
            max_query_len=max(counts),
            max_seq_len=max(lengths),
        )


def run(paged: Paged, tokens: Sequence[int], *, prompt_len: int, chunk: int) -> Tensor:
    """Logits ``[tokens, vocab]``: the prompt in chunks of ``chunk``, then one token a step."""
    sequence = Held(prompt_len)
    found: list[Tensor] = []
    while sequence.computed < len(tokens):
        at = sequence.computed
        end = min(at + chunk, prompt_len) if at < prompt_len else at + 1
        found += paged.step([(sequence, tokens[at:end])])
    return torch.cat(found)


def reference(model: Any, tokens: Sequence[int], *, prompt_len: int) -> Tensor:
    """The same logits by transformers: the prompt at once, then incrementally."""
    ids = torch.tensor([list(tokens)])
    with torch.inference_mode():
        out = model(ids[:, :prompt_len], use_cache=True)
        found = [out.logits[0]]
        for at in range(prompt_len, len(tokens)):
            # transformers renames the argument within its fifth major version
            key = "cache" if "cache" in out else "past_key_values"
            out = model(ids[:, at : at + 1], use_cache=True, **{key: out[key]})
            found.append(out.logits[0])
    return torch.cat(found)


def tokens_of(seed: int, count: int, vocab: int = 296) -> list[int]:
    """Random ids without special tokens."""
    source = random.Random(seed)
    return [source.randrange(vocab) for _ in range(count)]


def reference_model(folder: Path) -> Any:
    """transformers' model of the folder, float32, as fresh as one request would meet it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def difference(
    folder: Path, tokens: Sequence[int], *, prompt_len: int, chunk: int, page_size: int = 4
) -> float:
    """Largest absolute difference between our logits and transformers' over all positions."""
    expected = reference(reference_model(folder), tokens, prompt_len=prompt_len)
    paged = Paged(load(folder), page_size=page_size, num_pages=2 + 2 * len(tokens) // page_size)
    found = run(paged, tokens, prompt_len=prompt_len, chunk=chunk)
    assert found.dtype == torch.float32
    return float((found - expected).abs().max())
