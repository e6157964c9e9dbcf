"""Swapping on the CPU: as late as correct, and a little in every step.

Copies and compute share the same cores and the same memory, so a thread that copies beside the
compute gains nothing; but a long sequence takes as long to copy as a step takes. What a step
overwrites is copied out before it, the rest follows by and by.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

import torch
from torch import Tensor

from pagedd.core.plan import StepPlan
from pagedd.runtime.swap import STEP_BYTES, Copied, PageTables
from pagedd_kernels.backend import Backend


class DeferredSwap:
    """Copies pages between ``cache`` and ``host``, tensors of pages of one shape.

    ``step_bytes``: what is copied out in a step that need not have been, including what need be.
    """

    def __init__(
        self, cache: Tensor, host: Tensor, backend: Backend, step_bytes: int = STEP_BYTES["cpu"]
    ) -> None:
        self._cache = cache
        self._host = host
        self._backend = backend
        self._per_step = max(step_bytes // (cache[0].nbytes or 1), 1)
        self._due: dict[int, int] = {}  # host page → the device page to copy there; oldest first
        self._pages = 0
        self._seconds = 0.0

    def move(self, plan: StepPlan, tables: PageTables) -> None:
        """See ``Swap.move``."""
        for source, target in plan.swap_out:
            self._due[target] = source  # nobody wants what was to go there before
        if self._due:
            self._copy(self._take_due(plan, tables), self._cache, self._host)
        if plan.copies:
            self._backend.page_copy(self._cache, self._cache, torch.tensor(plan.copies))
        self._copy(plan.swap_in, self._host, self._cache)

    def take_copied(self) -> Copied:
        """See ``Swap.take_copied``."""
        copied = Copied(self._pages, self._seconds)
        self._pages, self._seconds = 0, 0.0
        return copied

    def _take_due(self, plan: StepPlan, tables: PageTables) -> list[tuple[int, int]]:
        """(device page, host page) of what must go out before the rest of ``plan``, and more."""
        overwritten = tables.pages_written(plan.chunks)
        overwritten.update(target for _, target in plan.copies)
        overwritten.update(target for _, target in plan.swap_in)
        wanted = {source for source, _ in plan.swap_in}
        taken: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        for host, device in self._due.items():
            needed = device in overwritten or host in wanted
            (taken if needed else others).append((device, host))
        taken += others[: max(self._per_step - len(taken), 0)]
        for _, host in taken:
            del self._due[host]
        return taken

    def _copy(self, copies: Iterable[tuple[int, int]], source: Tensor, target: Tensor) -> None:
        pairs = torch.tensor(list(copies), dtype=torch.int64).view(-1, 2)
        if not len(pairs):
            return
        began = perf_counter()
        self._backend.page_copy(source, target, pairs)
        self._seconds += perf_counter() - began
        self._pages += len(pairs)
