"""The compute stream and the copy stream of a CUDA device."""

# torch's streams and events carry few annotations:
# mypy: allow-untyped-calls
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from pagedd.core.plan import Copy
from pagedd.runtime.swap import Copied


class CudaStreams:
    """Copies between ``cache`` on a device and ``host``, pinned, on a stream of their own.

    Compute is what is added to the stream that is current at the time of the call.
    """

    def __init__(self, cache: Tensor, host: Tensor) -> None:
        self._cache = cache
        self._host = host
        self._copy = torch.cuda.Stream(cache.device)
        self._timed: deque[tuple[int, torch.cuda.Event, torch.cuda.Event]] = deque()  # pages

    def copy_out(self, copies: Sequence[Copy]) -> None:
        """See ``Streams``."""
        self._run(copies, self._cache, self._host)

    def copy_in(self, copies: Sequence[Copy]) -> None:
        """See ``Streams``."""
        self._run(copies, self._host, self._cache)

    def mark_copy(self) -> torch.cuda.Event:
        """See ``Streams``."""
        return _record(self._copy)

    def mark_compute(self) -> torch.cuda.Event:
        """See ``Streams``."""
        return _record(torch.cuda.current_stream(self._cache.device))

    def copy_waits(self, event: torch.cuda.Event) -> None:
        """See ``Streams``."""
        self._copy.wait_event(event)

    def compute_waits(self, event: torch.cuda.Event) -> None:
        """See ``Streams``."""
        torch.cuda.current_stream(self._cache.device).wait_event(event)

    def reached(self, event: torch.cuda.Event) -> bool:
        """See ``Streams``."""
        return bool(event.query())

    def take_copied(self) -> Copied:
        """See ``Streams``: of the copies that have ended by now."""
        pages, milliseconds = 0, 0.0
        while self._timed and self._timed[0][2].query():
            count, began, ended = self._timed.popleft()
            pages += count
            milliseconds += began.elapsed_time(ended)
        return Copied(pages, milliseconds / 1e3)

    def _run(self, copies: Sequence[Copy], source: Tensor, target: Tensor) -> None:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self._copy):
            began.record()
            for src, dst, length in runs(copies):
                pages = source[src : src + length]
                target[dst : dst + length].copy_(pages, non_blocking=True)
            ended.record()
        self._timed.append((len(copies), began, ended))


def _record(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record(stream)
    return event


def runs(copies: Sequence[Copy]) -> Iterator[tuple[int, int, int]]:
    """``copies`` as (first source, first target, length): neighbours that stay neighbours."""
    begin: Copy | None = None
    length = 0
    for copy in sorted(copies):
        if begin is not None and copy == (begin.src + length, begin.dst + length):
            length += 1
            continue
        if begin is not None:
            yield begin.src, begin.dst, length
        begin, length = copy, 1
    if begin is not None:
        yield begin.src, begin.dst, length


def page_copier(
    page_copy: Callable[[Tensor, Tensor, Tensor], None], cache: Tensor
) -> Callable[[Sequence[Copy]], None]:
    """``page_copy`` within ``cache``; the host does not wait for the list to get there."""

    def run(copies: Sequence[Copy]) -> None:
        pairs = torch.tensor(copies, dtype=torch.int64).pin_memory()
        page_copy(cache, cache, pairs.to(cache.device, non_blocking=True))

    return run
