"""``python -m pagedd_kernels.bench``: decode attention against what the memory can give.

For each batch and context, a layer of attention with the shape of an 8B model: keys and values read
a second, beside a measured copy (read and written) of one block of memory; and what page tables
cost: the same kernel over pages in disorder, and in the order in which they lie in memory.

Caches that hold what was read last cannot help: layers take turns, and together they are larger.
"""

# torch's graphs and events carry few annotations:
# mypy: allow-untyped-calls
from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from time import perf_counter

import torch
from torch import Tensor

from pagedd_kernels.backend import Backend, select_backend
from pagedd_kernels.inputs import PagedInputs

BATCHES = (1, 8, 32, 128)
CONTEXTS = (512, 4096, 32768)
COLD_BYTES = 256 << 20  # more than any cache holds
COPY_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Shape:
    """What is measured, and how often."""

    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    page_size: int = 16
    cold_bytes: int = COLD_BYTES
    copy_bytes: int = COPY_BYTES
    repeats: int = 10


SMALL = Shape(heads=4, kv_heads=2, head_dim=64, cold_bytes=1 << 16, copy_bytes=1 << 20, repeats=2)


@dataclass(frozen=True, slots=True)
class Result:
    """One batch and context. Rates in bytes a second."""

    batch: int
    context: int
    kv_bytes: int
    paged: float
    contiguous: float
    copy: float

    @property
    def share(self) -> float:
        """Of the copy's rate."""
        return self.paged / self.copy

    @property
    def overhead(self) -> float:
        """What pages in disorder take longer."""
        return self.contiguous / self.paged - 1


def copy_rate(device: torch.device, shape: Shape) -> float:
    """Bytes read and written a second by a copy within the device."""
    source = torch.zeros(shape.copy_bytes // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source), device, shape.repeats)
    return 2 * source.nbytes / seconds


def timed(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds that ``run`` takes, the quickest of ``repeats``.

    On a GPU it is recorded first, so that the host's launches do not count.
    """
    run()
    if device.type != "cuda":
        took = []
        for _ in range(repeats):
            began = perf_counter()
            run()
            took.append(perf_counter() - began)
        return min(took)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    graph.replay()
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize(device)
    return min(float(one.elapsed_time(other)) for one, other in pairwise(marks)) / 1e3


def measure(
    backend: Backend,
    batch: int,
    context: int,
    shape: Shape,
    device: torch.device,
    dtype: torch.dtype,
    copy: float,
) -> Result:
    """``batch`` sequences that have ``context`` tokens each, one row of each."""
    pages = -(-context // shape.page_size)
    size = 2 * shape.kv_heads * shape.head_dim * dtype.itemsize
    kv_bytes = batch * context * size
    layers = max(1, -(-shape.cold_bytes // kv_bytes))
    dims = (batch * pages, layers, 2, shape.kv_heads, shape.page_size, shape.head_dim)
    cache = torch.zeros(dims, dtype=dtype, device=device)
    q = torch.randn(batch, shape.heads, shape.head_dim, device=device).to(dtype)
    order = torch.arange(batch * pages, dtype=torch.int32)
    mixed = order[torch.randperm(len(order), generator=torch.Generator().manual_seed(0))]

    def rate(table: Tensor) -> float:
        inputs = _decode_inputs(table.to(device).view(batch, pages), context, shape)

        def run() -> None:
            for layer in range(layers):
                backend.paged_attention(q, cache, layer, inputs, scale=shape.head_dim**-0.5)

        return layers * kv_bytes / timed(run, device, shape.repeats)

    return Result(batch, context, kv_bytes, rate(mixed), rate(order), copy)


def _decode_inputs(table: Tensor, context: int, shape: Shape) -> PagedInputs:
    batch, device = len(table), table.device
    positions = torch.full((batch,), context - 1, dtype=torch.int64, device=device)
    return PagedInputs(
        positions=positions,
        slots=table[:, -1].long() * shape.page_size + positions % shape.page_size,
        cu_seqlens=torch.arange(batch + 1, dtype=torch.int32, device=device),
        seq_lens=torch.full((batch,), context, dtype=torch.int32, device=device),
        page_table=table,
        num_decode=batch,
        max_query_len=1,
        max_seq_len=context,
    )


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> int:
    """Print one line a measurement, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m pagedd_kernels.bench", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--small", action="store_true", help="shapes that any machine does at once")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args(arguments)
    device, dtype = torch.device(args.device), getattr(torch, args.dtype)
    shape = SMALL if args.small else Shape()
    batches, contexts = ((1, 3), (40, 100)) if args.small else (BATCHES, CONTEXTS)
    backend = select_backend(device, dtype).backend
    copy = copy_rate(device, shape)
    if not args.json:
        print(f"{backend.name} on {device}, {args.dtype}; a copy: {copy / 1e9:,.0f} GB/s")
    for context in contexts:
        for batch in batches:
            found = measure(backend, batch, context, shape, device, dtype, copy)
            if args.json:
                print(json.dumps(asdict(found) | {"backend": backend.name}), flush=True)
            else:
                print(
                    f"{batch:4} x {context:6} tokens: {found.paged / 1e9:7,.1f} GB/s, "
                    f"{found.share:5.0%} of the copy, page tables cost {found.overhead:+.1%}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
