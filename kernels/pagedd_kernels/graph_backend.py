"""What a runner on a GPU asks of a backend beside the operations of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from pagedd_kernels.backend import Backend
from pagedd_kernels.inputs import PagedInputs, SamplingInputs

Progress = Callable[[int, int, str], None]  # done, of how many, what is next


@dataclass(frozen=True, slots=True)
class KernelShape:
    """All that the kernels of a model are compiled for. Sizes in elements, lengths in tokens."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    page_size: int
    max_num_seqs: int
    max_model_len: int
    windows: frozenset[int]  # of all layers; 0: all keys
    rope_layers: frozenset[bool]  # whether layers rotate
    qk_norm: bool
    dtype: torch.dtype  # of the activations
    cache_dtype: torch.dtype


@runtime_checkable
class GraphBackend(Backend, Protocol):
    """A backend whose operations on a GPU may be captured in a graph.

    If ``capturable``, no call waits for the device, and grids and sizes follow from shapes and from
    the counts in ``PagedInputs`` alone. So a graph holds for every batch that is padded to its
    shapes: with slot -1 (no write), sequences of length 0 (zeros come out), page -1 (no copy), and
    captured with the longest ``max_seq_len`` that it will meet. The cache may have one of the
    dtypes ``FP8``, with ``PagedInputs.kv_scales``.
    """

    capturable: bool

    def paged_attention(
        self,
        q: Tensor,
        cache: Tensor,
        layer: int,
        inputs: PagedInputs,
        *,
        scale: float,
        window: int = 0,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        """See ``Backend.paged_attention``; writes to ``out [tokens, heads·head_dim]`` if given.

        ``lse [tokens, heads]`` float32, if given, gets the natural logarithm of each row's sum of
        exp(score), -inf where there is no key: what merging it with further keys takes.
        """
        ...

    def page_copy(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """See ``Backend.page_copy``; a pair with a -1 is left out."""
        ...

    def page_gather(self, source: Tensor, pages: Tensor, target: Tensor) -> None:
        """Page ``pages[i]`` of ``source`` → page i of ``target``; ``pages [n]`` int64, -1: none.

        Both are contiguous, ``[any, …page…]``; ``target`` holds at least n pages.
        """
        ...

    def page_scatter(self, source: Tensor, pages: Tensor, target: Tensor) -> None:
        """Page i of ``source`` → page ``pages[i]`` of ``target``; the reverse of ``page_gather``.

        No two entries name the same page.
        """
        ...

    def sample(self, logits: Tensor, inputs: SamplingInputs, out: Tensor | None = None) -> Tensor:
        """One token a row of ``logits [rows, vocab]`` float32 → ``[rows]`` int64, or into ``out``.

        Weights exp(logit / temperature) of what min-p, then top-k, then top-p keep (equals of the
        last are all kept), drawn by inversion of the cumulative distribution at the stream's
        number. A row that holds NaN, or whose largest is infinite, gives -1; where the largest is
        taken, the least id wins a tie.
        """
        ...

    def warm_up(self, shape: KernelShape, device: torch.device, progress: Progress) -> None:
        """Compile and load every kernel variant that a model of ``shape`` will launch.

        After it no launch compiles anything. Does not launch, and takes no device memory but the
        code's.
        """
        ...
