"""Copies of whole pages, for copy-on-write."""

# Triton reads the annotations of a kernel: its parameters have none but constexpr.
# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pagedd_kernels.triton_.launch import Launch

CHUNK = 4096  # elements a program copies


@triton.jit
def page_copy_kernel(
    source, target, pairs, stride_page, SIZE: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """Copy one chunk of one page: ``source``, ``target [pages, SIZE]``, ``pairs [n, 2]`` int64."""
    pair = tl.program_id(0)
    page_read = tl.load(pairs + 2 * pair)
    page_written = tl.load(pairs + 2 * pair + 1)
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = element < SIZE
    values = tl.load(source + page_read * stride_page + element, mask=inside)
    tl.store(target + page_written * stride_page + element, values, mask=inside)


def page_copy(source: Tensor, target: Tensor, pairs: Tensor) -> Launch:
    """See ``Backend.page_copy``."""
    assert source.is_contiguous()
    assert target.is_contiguous()
    assert pairs.is_contiguous()
    size = source.stride(0)
    arguments = {
        "source": source,
        "target": target,
        "pairs": pairs,
        "stride_page": size,
        "SIZE": size,
        "BLOCK": CHUNK,
    }
    return Launch(page_copy_kernel, (pairs.shape[0], triton.cdiv(size, CHUNK)), arguments, 4)
