"""What the kernels are told of the cache and the batch, kept between calls."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from pagedd_kernels.cpu.library import (
    DTYPE_CODES,
    BatchStruct,
    CacheStruct,
    Library,
    PagesStruct,
)
from pagedd_kernels.inputs import PagedInputs


class Views:
    """Native descriptions of the cache and the batch seen last.

    Only addresses are kept, so tensors of the same ``inputs`` may change in place.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.batch = BatchStruct()
        self.cache = CacheStruct()
        self.batch_address = ctypes.addressof(self.batch)
        self.cache_address = ctypes.addressof(self.cache)
        self._inputs: PagedInputs | None = None
        self._cache_seen: weakref.ref[Tensor] | None = None

    def see(self, cache: Tensor, inputs: PagedInputs) -> None:
        """Make the descriptions those of ``cache`` and ``inputs``."""
        if self._inputs is not inputs:
            _describe_batch(self.batch, inputs)
            self._inputs = inputs
        if self._cache_seen is None or self._cache_seen() is not cache:
            _describe_cache(self.cache, cache)
            self._cache_seen = weakref.ref(cache)
            # a cache not written to yet comes in huge pages: far fewer address translations
            self._library.huge_pages(cache.data_ptr(), cache.nbytes)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a tensor without gaps, in numbers."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _describe_batch(batch: BatchStruct, inputs: PagedInputs) -> None:
    assert inputs.slots.dtype is torch.int64
    assert inputs.slots.is_contiguous()
    for tensor in (inputs.cu_seqlens, inputs.seq_lens):
        assert tensor.dtype is torch.int32
        assert tensor.is_contiguous()
    table = inputs.page_table
    assert table.dtype is torch.int32
    assert table.stride(1) == 1
    batch.slots = inputs.slots.data_ptr()
    batch.cu_seqlens = inputs.cu_seqlens.data_ptr()
    batch.seq_lens = inputs.seq_lens.data_ptr()
    batch.page_table = table.data_ptr()
    batch.table_stride = table.stride(0)
    batch.seqs = inputs.seq_lens.shape[0]
    batch.tokens = inputs.slots.shape[0]


def _describe_cache(struct: CacheStruct, cache: Tensor) -> None:
    pages, layers, *block = cache.stride()
    assert tuple(block) == dense_strides(cache.shape[2:])
    struct.data = cache.data_ptr()
    struct.page_stride, struct.layer_stride = pages, layers
    struct.kv_heads, struct.page_size, struct.head_dim = cache.shape[3:]
    struct.dtype = DTYPE_CODES[cache.dtype]


def describe_pages(cache: Tensor) -> PagesStruct:
    """``cache`` [pages, layers, …], or pages [pages, …] in one piece each; strides in bytes."""
    page, run = cache.stride(0), cache.stride(1)
    size = cache.element_size()
    return PagesStruct(cache.data_ptr(), page * size, run * size)


def runs_of_pages(*caches: Tensor) -> tuple[int, int]:
    """How many runs of memory a page is cut into so that it has them in each of ``caches``, of one
    shape, and bytes of a run: a page where it lies in one piece in all, else a layer's part of it.
    """
    shape = caches[0].shape[1:]
    size = caches[0].element_size()
    if all(cache.stride()[1:] == dense_strides(shape) for cache in caches):
        return 1, math.prod(shape) * size
    assert all(cache.stride()[2:] == dense_strides(shape[1:]) for cache in caches)
    return shape[0], math.prod(shape[1:]) * size
