"""Host memory for the pages of swapped sequences, and the copies there and back."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

import torch
from torch import Tensor

from pagedd.core.plan import Copy
from pagedd_kernels.backend import Backend


class HostCache:
    """``pages`` [num_pages, …] in host memory, shaped like those of ``cache``; pinned for a GPU.

    On a GPU the copies are asynchronous, but in the order of the stream that computes: a page is
    overwritten only after its copy out, and read only after its copy in. The host itself never
    reads ``pages``.
    """

    def __init__(self, cache: Tensor, num_pages: int, backend: Backend) -> None:
        shape = (num_pages, *cache.shape[1:])
        pinned = cache.is_cuda and num_pages > 0
        self.pages = torch.empty(shape, dtype=cache.dtype, pin_memory=pinned)
        self._cache = cache
        self._page_copy = backend.page_copy
        self._moves = 0  # batches since take_seconds()
        self._seconds = 0.0  # of those that were waited for
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []  # of the others

    def swap_out(self, copies: Iterable[Copy]) -> None:
        """Device page ``src`` → host page ``dst``, whole pages, each one contiguous block."""
        self._move(copies, self._cache, self.pages)

    def swap_in(self, copies: Iterable[Copy]) -> None:
        """Host page ``src`` → device page ``dst``."""
        self._move(copies, self.pages, self._cache)

    def take_seconds(self) -> float | None:
        """What the copies since the last call took; None: none, or the device is still at them."""
        moves, seconds, events = self._moves, self._seconds, self._events
        self._moves, self._seconds, self._events = 0, 0.0, []
        if not moves or not all(ended.query() for _, ended in events):  # type: ignore[no-untyped-call]
            return None
        return seconds + float(sum(began.elapsed_time(ended) for began, ended in events)) / 1e3

    def _move(self, copies: Iterable[Copy], source: Tensor, target: Tensor) -> None:
        self._moves += 1
        if self._cache.is_cuda:
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            began.record()
            for src, dst in copies:
                target[dst].copy_(source[src], non_blocking=True)
            ended.record()
            self._events.append((began, ended))
        else:
            started = perf_counter()
            self._page_copy(source, target, torch.tensor(tuple(copies), dtype=torch.int64))
            self._seconds += perf_counter() - started
