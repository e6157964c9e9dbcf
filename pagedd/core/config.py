"""SchedulerConfig: what a scheduler is told once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The limits of one scheduler. All counts are at least 1, but for ``max_queue`` and
    ``num_host_pages``, which can be 0.
    """

    num_pages: int
    page_size: int  # tokens
    max_num_seqs: int  # slots
    max_num_batched_tokens: int  # rows of one step
    max_model_len: int  # tokens of one sequence
    max_queue: int  # requests that wait
    eos_ids: frozenset[int]
    prefix_cache: bool = True
    preemption_policy: str = "length"  # a name of POLICIES
    preemption_mode: str = "auto"  # or "swap", "recompute"
    num_host_pages: int = 0
    page_bytes: int = 0  # of one page, to estimate how long a swap takes
    priority_aging: float | None = None  # seconds of waiting that make one level more urgent
    fair_share: bool = False  # within a priority, clients take turns by the tokens they used
    swap_in_ahead: bool = False  # copy pages in a step before they are read, when others run
    swap_in_pages: int | None = None  # to copy in, at most, in a step in which others compute
    watermark: float = 0.01  # share of the pages that an admission leaves to those that run
    # Longer prompts share pages only with prompts of the same length: their keys depend on it.
    longest_free_prompt: int | None = None

    @property
    def max_sequence_len(self) -> int:
        """Tokens that one sequence can reach: by the model, and alone in the whole pool."""
        return min(self.max_model_len, self.num_pages * self.page_size)
