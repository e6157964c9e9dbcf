"""Memory of the host that is mapped at once and comes when it is written."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

_POPULATE_WRITE = 23  # madvise(2), since Linux 5.14
_PIECE = 2 << 20  # bytes to populate at a time: a huge page, some tenths of a millisecond


def map_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeroes that take no memory before they are written, in huge pages where the system has them.

    ``torch.zeros`` would write them all, and in small pages.
    """
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return torch.zeros(shape, dtype=dtype)
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=dtype).view(shape)


class Populated:
    """The beginning of ``memory`` that is in place, so that nobody who writes it waits for it.

    To be given a page by the system costs more than to copy one. Elsewhere than on Linux nothing
    is ever populated, and pages come one by one.
    """

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory  # keeps it mapped
        self._madvise = _madvise()
        self._size = memory.nbytes if self._madvise else 0
        self.end = 0  # bytes from the beginning that are in place

    def extend(self, end: int, limit: int) -> None:
        """Populate up to ``end`` bytes from the beginning, but no more than ``limit`` bytes now."""
        stop = min(end, self.end + limit, self._size)
        while self._madvise is not None and self.end < stop:
            length = min(_PIECE, self._size - self.end)
            if self._madvise(self._memory.data_ptr() + self.end, length, _POPULATE_WRITE):
                self._size = self.end  # an older kernel, or no memory: then it comes as it can
                return
            self.end += length


class AheadOfUse:
    """Populates ``memory``, which is given away from the lowest page on, before it is needed.

    As far ahead as use has come, at least ``at_least`` bytes: a daemon with little to do stays
    small, and one with much to do meets memory that is there. ``page_bytes``: of each page.
    """

    def __init__(self, memory: Tensor, page_bytes: int, at_least: int) -> None:
        self._populated = Populated(memory)
        self._page_bytes = page_bytes
        self._at_least = at_least
        self._used = 0  # bytes from the beginning

    @property
    def bytes_in_place(self) -> int:
        """From the beginning of the memory."""
        return self._populated.end

    def use(self, page: int) -> None:
        """``page`` was given away."""
        self._used = max(self._used, (page + 1) * self._page_bytes)

    def extend(self) -> bool:
        """Populate a little more: some tenths of a millisecond. False: there is enough."""
        before = self._populated.end
        self._populated.extend(self._used + max(self._used, self._at_least), _PIECE)
        return self._populated.end > before


def _madvise() -> Callable[[int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return lambda address, length, advice: int(function(address, length, advice))
