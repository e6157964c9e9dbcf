"""Memory of the host that is mapped at once and comes when it is written."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Callable, Sequence
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
    is ever populated, and pages come one by one. ``memory`` may lie anywhere in a mapping.
    """

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory  # keeps it mapped
        # madvise(2) takes whole pages: what is before the memory in its first one comes as well
        self._before = memory.data_ptr() % mmap.PAGESIZE
        self._madvise = _madvise()
        self._size = memory.nbytes if self._madvise else 0
        self.end = 0  # bytes from the beginning that are in place

    def extend(self, end: int, limit: int) -> None:
        """Populate up to ``end`` bytes from the beginning, but no more than ``limit`` bytes now."""
        stop = min(end, self.end + limit, self._size)
        while self._madvise is not None and self.end < stop:
            length = min(_PIECE, self._size - self.end)
            begin = self._memory.data_ptr() - self._before + self.end
            if self._madvise(begin, self._before + length, _POPULATE_WRITE):
                self._size = self.end  # an older kernel, or no memory: then it comes as it can
                return
            self.end += length


class AheadOfUse:
    """Populates memory that is given away by pages, from the lowest on, before it is needed.

    As far ahead as use has come, at least ``at_least`` bytes: a daemon with little to do stays
    small, and one with much to do meets memory that is there. ``areas`` [pages, …] each hold a part
    of every page, without gaps.
    """

    def __init__(self, areas: Sequence[Tensor], at_least: int) -> None:
        self._areas = [Populated(area) for area in areas]
        self._page_bytes = areas[0][0].nbytes  # in one area
        self._at_least = -(-at_least // len(areas))
        self._used = 0  # bytes from the beginning of each area

    @property
    def bytes_in_place(self) -> int:
        """From the beginnings of the areas."""
        return sum(area.end for area in self._areas)

    def use(self, page: int) -> None:
        """``page`` was given away."""
        self._used = max(self._used, (page + 1) * self._page_bytes)

    def extend(self) -> bool:
        """Populate a little more: some tenths of a millisecond. False: there is enough."""
        wanted = self._used + max(self._used, self._at_least)
        for area in sorted(self._areas, key=lambda area: area.end):
            before = area.end
            area.extend(wanted, _PIECE)
            if area.end > before:
                return True
        return False


def _madvise() -> Callable[[int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return lambda address, length, advice: int(function(address, length, advice))
