"""Host memory for the pages of swapped sequences and evicted prefixes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from pagedd.core.plan import Copy
from pagedd.runtime.host_memory import Populated, map_zeros

STEP_BYTES = 4 << 20  # to populate in a step: about a millisecond


class HostCache:
    """``pages`` [num_pages, …] in host memory, shaped like those of ``cache``; pinned for a GPU.

    Pinned memory is in place from the start. Other memory comes as it is used, from the lowest
    page on (those are given away first): ``reserve`` pages are populated before they are needed,
    so that a swap does not wait for them, and the rest costs nothing.
    """

    def __init__(self, cache: Tensor, num_pages: int, reserve: int) -> None:
        shape = (num_pages, *cache.shape[1:])
        self._page_bytes = cache[0].nbytes
        self._reserve = reserve
        self._used = 0  # pages below were written, or are about to be
        self._populated: Populated | None = None
        if cache.is_cuda and num_pages:
            self.pages = torch.empty(shape, dtype=cache.dtype, pin_memory=True)
            return
        self.pages = map_zeros(shape, cache.dtype)
        self._populated = Populated(self.pages)
        self._populate(self.pages.nbytes)

    def use(self, copies: Iterable[Copy]) -> None:
        """The swap-outs of a step, before they are made: some more memory is made ready for the
        next ones.
        """
        self._used = max([self._used, *(copy.dst + 1 for copy in copies)])
        self._populate(STEP_BYTES)

    def _populate(self, limit: int) -> None:
        if self._populated is not None:
            self._populated.extend((self._used + self._reserve) * self._page_bytes, limit)
