"""Carries a step plan out on a device: plan → tensors → forward → token ids."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from pagedd.core.plan import Sampled, StepPlan, StepResult
from pagedd.models.load import LoadedModel
from pagedd.runtime.batch import Batch, sampled_rows
from pagedd.runtime.host_cache import HostCache
from pagedd.runtime.host_memory import AheadOfUse
from pagedd.runtime.sampler import Sampler
from pagedd.runtime.swap import Swap

# Of the cache, to be there before the first request: enough for some dozen short ones.
CACHE_AHEAD = 256 << 20


class Runner:
    """Owns the KV cache, the persistent batch and the sampler of one model.

    ``cache`` [num_pages, layers, 2, kv_heads, page_size, head_dim] in the model's dtype; in memory
    layers come first.
    ``phases`` holds the seconds that the last step spent in build, execute and sample, and in swap
    those of the copies to host memory or back that ended in it.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        cache: Tensor,
        host_cache: HostCache,
        swap: Swap,
        batch: Batch,
        sampler: Sampler,
    ) -> None:
        self.model = loaded.model
        self.backend = loaded.backend
        self.cache = cache
        self.host_cache = host_cache
        self.swap = swap
        self.batch = batch
        self.sampler = sampler
        self.phases: dict[str, float] = {}
        self._ahead = AheadOfUse(cache.unbind(1), CACHE_AHEAD)

    def prepare(self) -> bool:
        """See ``engine.loop.Runner``: has memory for the next pages of the cache in place."""
        return self._ahead.extend()

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Leave, join, grow; swap and copy; compute, sample.

        The moves need to know which pages the chunks will touch; to rows of the batch it makes no
        difference that those come first.
        """
        began = perf_counter()
        self._rearrange(plan)
        rearranged = perf_counter()
        self.host_cache.use(plan.swap_out)
        self.swap.move(plan, self.batch)
        sampled = self._compute(plan)
        self.phases["build"] += rearranged - began
        copied = self.swap.take_copied()
        if copied.pages:
            self.phases["swap"] = copied.seconds
        return StepResult(sampled, copied.pages)

    def _compute(self, plan: StepPlan) -> tuple[Sampled, ...]:
        began = perf_counter()
        inputs = self.batch.build(plan.chunks)
        built = perf_counter()
        slots, rows = sampled_rows(plan.chunks)
        wanted, again = drawn_rows(rows, len(inputs.token_ids))
        hidden = self.model.forward(
            inputs.token_ids, inputs.paged, self.cache, inputs.prompt_lens, wanted
        )
        if not slots:
            self.phases = {"build": built - began, "execute": perf_counter() - built, "sample": 0.0}
            return ()
        if again is not None:
            hidden = hidden.index_select(0, again)
        counts = self.batch.num_tokens[slots]
        tokens = self.model.greedy(hidden) if self.sampler.is_plain(slots, counts) else None
        if tokens is None:
            logits = self.model.logits(hidden)
            executed = perf_counter()
            sampled = self.sampler.sample(logits, slots, counts)
        else:
            executed = perf_counter()
            sampled = [Sampled(*pair) for pair in zip(slots, tokens.tolist(), strict=True)]
        drawn = np.fromiter((s.token for s in sampled), dtype=np.int64, count=len(sampled))
        self.batch.append(np.array(slots, dtype=np.int64), np.maximum(drawn, 0))
        self.phases = {
            "build": built - began,
            "execute": executed - built,
            "sample": perf_counter() - executed,
        }
        return tuple(sampled)

    def _rearrange(self, plan: StepPlan) -> None:
        for slot in plan.leave:
            self.sampler.leave(slot)
        for join in plan.join:
            self.batch.join(join)
            self.sampler.join(join)
            self._ahead.use(max(join.pages, default=0))
        for grow in plan.grow:
            self.batch.grow(grow)
            self._ahead.use(grow.page)


def drawn_rows(rows: list[int], num_tokens: int) -> tuple[Tensor | None, Tensor | None]:
    """Which of a step's rows are drawn from, ascending; and for each draw which of those it is.

    None: all rows, each once; and each draw the next one.
    """
    if rows == list(range(num_tokens)):
        return None, None
    wanted, again = np.unique(np.array(rows, dtype=np.int64), return_inverse=True)
    once = len(wanted) == len(rows)  # in plan order rows ascend
    return torch.from_numpy(wanted), None if once else torch.from_numpy(again)
