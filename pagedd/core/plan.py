"""One step as plain data: what the scheduler decided and what the runner answers.

A *slot* is a row of the runner's persistent batch, 0 ≤ slot < max_num_seqs. A running sequence
keeps its slot until it finishes or is preempted. A plan holds only what changed since the plan
before it, so its size follows the changes and not the length of the contexts, and it could be sent
to another rank as it is.

The runner carries a plan out in the order of the fields: swap_out, copies, swap_in, leave, join,
grow, chunks. So a device page that a swap-out frees can be the target of anything else in the same
plan, and a host page that one writes can be the source of a swap-in. What one of the three moves
reads, that same one does not write: each is one batch, in any order within.

A swap-in can be for pages that no chunk of its plan reads (``swap_in_ahead``); then it need not be
complete before the chunks are computed, but it must be before the next plan is carried out, which
may read its targets, give them to somebody else, or write on its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pagedd.core.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Join:
    """A sequence takes a slot: everything the runner must know of it."""

    slot: int
    handle: int
    index: int  # the choice, 0 ≤ index < n
    tokens: tuple[int, ...]  # prompt, then what was generated before a preemption
    num_prompt: int  # tokens[:num_prompt] is the prompt
    params: SamplingParams
    pages: tuple[int, ...]  # physical pages held so far, in logical order


class Grow(NamedTuple):
    """The page table of ``slot`` names ``page`` at ``logical`` (new, or replaced by a copy)."""

    slot: int
    logical: int
    page: int


class Copy(NamedTuple):
    """Copy the whole page ``src`` onto ``dst`` before anything of this step is computed.

    In ``swap_out`` ``src`` is a device page and ``dst`` a host page, in ``swap_in`` the reverse.
    """

    src: int
    dst: int


class Chunk(NamedTuple):
    """Compute ``tokens[start : start + length]`` of the sequence in ``slot``.

    ``samples`` are the slots that draw a token from the last position's logits: none while a
    prefill goes on, the slot itself, or at the end of a shared prompt all sibling slots.
    """

    slot: int
    start: int
    length: int
    samples: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The decision of one step."""

    step: int
    swap_out: tuple[Copy, ...]
    copies: tuple[Copy, ...]
    swap_in: tuple[Copy, ...]
    leave: tuple[int, ...]  # slots given back since the last plan
    join: tuple[Join, ...]
    grow: tuple[Grow, ...]
    chunks: tuple[Chunk, ...]  # single-token rows first, then longer ones

    @property
    def num_tokens(self) -> int:
        """Rows of the forward pass."""
        return sum(chunk.length for chunk in self.chunks)


class TopLogprob(NamedTuple):
    """One alternative at a position."""

    token: int
    logprob: float


class TokenLogprobs(NamedTuple):
    """Log-probability of the drawn token and of the most likely ones, from the raw logits."""

    logprob: float
    top: tuple[TopLogprob, ...]


class Sampled(NamedTuple):
    """What one slot drew; ``token`` = -1 when its logits held NaN or no finite value."""

    slot: int
    token: int
    logprobs: TokenLogprobs | None = None


class NoMemory(Exception):
    """A runner had no memory to compute a plan: it has made the moves, and computed nothing."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step has drawn, and copied.

    ``sampled``: one entry for every slot named in the chunks' ``samples``, in that order.
    ``copied``: pages whose copies, to host memory or back, have ended and took the runner's phase
    ``swap``: of this plan or of earlier ones.
    """

    sampled: tuple[Sampled, ...]
    copied: int = 0
