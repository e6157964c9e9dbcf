"""How well a model foretells a text: the measure of what rounding weights costs.

Perplexity is the exponential of the mean loss; the loss of a token is the negative logarithm of
the probability that the model gave it, from float32 logits (Jelinek et al. 1977).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pagedd.core.plan import Chunk, Join
from pagedd.core.request import SamplingParams
from pagedd.models.load import LoadedModel
from pagedd.runtime.batch import Batch
from pagedd.runtime.sizes import BATCHED_TOKENS, PAGE_SIZE

WINDOW = 512  # tokens that a model sees at a time
STRIDE = 448  # tokens by which the window moves on: those that are new in it count


class Span(NamedTuple):
    """Tokens ``begin`` to ``end`` are computed; the losses of those from ``first`` on count."""

    begin: int
    first: int
    end: int


def spans(count: int, window: int = WINDOW, stride: int = STRIDE) -> Iterator[Span]:
    """Windows over ``count`` tokens; ``stride`` is less than ``window``.

    Each token but the very first counts once, and has at least ``window - stride`` before it except
    near the beginning.
    """
    done = 1
    for begin in range(0, max(count - 1, 0), stride):
        end = min(begin + window, count)
        yield Span(begin, done, end)
        done = end
        if end == count:
            return


def token_losses(
    loaded: LoadedModel,
    ids: Sequence[int],
    front: Sequence[int] = (),
    *,
    window: int = WINDOW,
    stride: int = STRIDE,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Tensor:
    """Losses ``[len(ids) - 1]`` float64 in nats, of all tokens but the first.

    Each window is a prompt of its own in the paged cache, behind the tokens ``front``, computed in
    chunks as the runner computes prompts.
    """
    length = len(front) + min(window, len(ids))
    paged = _Prompt(loaded, length)
    losses = []
    for span in spans(len(ids), window, stride):
        tokens = [*front, *ids[span.begin : span.end]]
        # the row before a token's has the logits of that token
        skipped = len(front) + span.first - span.begin - 1
        losses.append(paged.losses(tokens, skipped))
        progress(span.end / len(ids))
    return torch.cat(losses)


class _Prompt:
    """One sequence in a cache that holds it, computed anew for each text."""

    def __init__(self, loaded: LoadedModel, length: int) -> None:
        spec, device = loaded.spec, loaded.device
        self._model = loaded.model
        self._chunk = BATCHED_TOKENS[device.type]
        page_size = PAGE_SIZE[device.type]
        self._pages = tuple(range(-(-length // page_size)))
        shape = (len(self._pages), spec.num_layers, 2, spec.num_kv_heads, page_size, spec.head_dim)
        self._cache = torch.zeros(shape, dtype=spec.dtype, device=device)
        self._batch = Batch(
            max_num_seqs=1,
            max_tokens=self._chunk,
            max_model_len=length,
            page_size=page_size,
        )

    @torch.inference_mode()
    def losses(self, tokens: Sequence[int], skipped: int) -> Tensor:
        """Of ``tokens[skipped + 1:]``, each after all that come before it, float64."""
        params = SamplingParams(max_tokens=1)
        join = Join(0, 0, 0, tuple(tokens), len(tokens), params, self._pages)
        self._batch.join(join)
        found = []
        for start in range(0, len(tokens) - 1, self._chunk):
            length = min(self._chunk, len(tokens) - start)
            inputs = self._batch.build((Chunk(0, start, length, ()),)).to(self._cache.device)
            hidden = self._model.forward(
                inputs.token_ids, inputs.paged, self._cache, inputs.prompt_lens
            )
            first, last = max(skipped - start, 0), min(length, len(tokens) - 1 - start)
            if first < last:
                logits = self._model.logits(hidden[first:last].contiguous())
                targets = tokens[start + first + 1 : start + last + 1]
                found.append(_losses(logits, targets))
        return torch.cat(found)


def _losses(logits: Tensor, targets: Sequence[int]) -> Tensor:
    """``logits [rows, vocab]`` float32, one target a row → ``[rows]`` float64, on the CPU."""
    index = torch.tensor(targets, device=logits.device)[:, None]
    return (logits.logsumexp(1) - logits.gather(1, index)[:, 0]).double().cpu()


class Comparison(NamedTuple):
    """Losses beside those of a reference over the same tokens."""

    perplexity: float
    change: float  # of the perplexity, as a share of the reference's
    error: float  # standard error of that share
    most: float  # the largest difference of the loss of one token


def compare(losses: Tensor, reference: Tensor) -> Comparison:
    """Token by token, so that what makes a token hard for both does not blur the difference."""
    apart = losses - reference
    change = math.expm1(float(apart.mean()))
    error = float(apart.std() / math.sqrt(len(apart))) * (1 + change)
    return Comparison(float(losses.mean().exp()), change, error, float(apart.abs().max()))
