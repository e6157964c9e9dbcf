"""Copies of whole pages: copy-on-write, and to and from a staging buffer for swaps."""

# Triton reads the annotations of a kernel: its parameters have none but constexpr.
# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagedd_kernels.triton_.launch import Launch

CHUNK = 2048  # 4-byte words a program copies


@triton.jit(do_not_specialize=["size"], do_not_specialize_on_alignment=["reads", "writes"])
def page_copy_kernel(
    source, target, reads, writes, size, STRIDE: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """Copy one chunk of one page, 16 bytes a thread and load: grid (pages, chunks).

    ``source``, ``target [pages, size]`` int32 words, ``size`` a multiple of 4. Entry i of ``reads``
    and ``writes`` (int64, ``STRIDE`` apart; None: i itself) names the pages; -1: no copy.
    """
    entry = tl.program_id(0).to(tl.int64)
    page_read = entry
    page_written = entry
    if reads is not None:
        page_read = tl.load(reads + entry * STRIDE)
    if writes is not None:
        page_written = tl.load(writes + entry * STRIDE)
    if (page_read < 0) | (page_written < 0):
        return
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # `size` is not specialised on; said here, loads and stores stay 16 bytes wide
    size = (size // 4) * 4
    inside = word < size
    values = tl.load(source + page_read * size + word, mask=inside)
    tl.store(target + page_written * size + word, values, mask=inside)


def page_copy(source: Tensor, target: Tensor, pairs: Tensor) -> Launch:
    """See ``GraphBackend.page_copy``."""
    assert pairs.is_contiguous()
    return _launch(source, target, pairs[:, 0], pairs[:, 1])


def page_gather(source: Tensor, pages: Tensor, target: Tensor) -> Launch:
    """See ``GraphBackend.page_gather``."""
    assert pages.is_contiguous()
    return _launch(source, target, pages, None)


def page_scatter(source: Tensor, pages: Tensor, target: Tensor) -> Launch:
    """See ``GraphBackend.page_scatter``."""
    assert pages.is_contiguous()
    return _launch(source, target, None, pages)


def _launch(source: Tensor, target: Tensor, reads: Tensor | None, writes: Tensor | None) -> Launch:
    index = reads if reads is not None else writes
    assert index is not None
    words = [tensor.view(tensor.shape[0], -1).view(torch.int32) for tensor in (source, target)]
    size = words[0].shape[1]
    assert words[1].shape[1] == size
    assert size % 4 == 0
    arguments = {
        "source": words[0],
        "target": words[1],
        "reads": reads,
        "writes": writes,
        "size": size,
        "STRIDE": index.stride(0),
        "BLOCK": CHUNK,
    }
    return Launch(page_copy_kernel, (index.shape[0], triton.cdiv(size, CHUNK)), arguments, 4)
