"""How fast attention over the cache is on this CPU: ``python -m pagedd_kernels.cpu.bench``.

Two questions. Decode attention has to read the keys and values once and does little else, so how
near does it come to a plain read of as many bytes by as many threads? And what do page tables cost:
the same kernel over pages in random order, against one page as long as the sequence?

On virtual machines whose host gives memory in small pages, each such page costs a walk through two
tables, which one run of memory spares the processor in part: what pages cost there is the memory's.

What is compared runs in turns, and medians are taken, so that a change of the machine's mood hits
both sides. A run goes through several layers, each with keys of its own, as a step does.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter

import torch

from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.cpu.bench_case import DTYPE, Case, Shape, filled_memory, fresh_memory
from pagedd_kernels.cpu.threads import default_threads

PAGE_SIZE = 32  # the default on a CPU
TOTAL_BYTES = 1 << 30  # of keys and values in a case, about: more than any cache of a processor


SHAPES = (Shape("smollm2-135m", 9, 3, 64), Shape("qwen3-0.6b", 16, 8, 128))
READ_CASES = ((8, 1024), (32, 512))  # sequences, tokens of each
PAGED_CASES = ((8, 512), (8, 2048), (4, 8192))


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Decode attention against a plain read; medians, in 10⁹ bytes a second."""

    shape: str
    sequences: int
    tokens: int
    threads: int
    attention_gb_s: float
    read_gb_s: float

    @property
    def share(self) -> float:
        """Of the read's speed."""
        return self.attention_gb_s / self.read_gb_s


@dataclass(frozen=True, slots=True)
class PagedResult:
    """Medians in milliseconds of the same attention over three kinds of page tables."""

    shape: str
    sequences: int
    tokens: int
    page_size: int
    threads: int
    contiguous_ms: float  # one page as long as the sequence
    in_order_ms: float  # pages of page_size, one after another
    scattered_ms: float  # the same in random order

    @property
    def overhead(self) -> float:
        """What scattered pages cost more than one run of memory."""
        return self.scattered_ms / self.contiguous_ms - 1

    @property
    def overhead_of_order(self) -> float:
        """What scattered pages cost more than the same pages one after another."""
        return self.scattered_ms / self.in_order_ms - 1


class Reader:
    """Reads memory and nothing else: the C library's search for a byte that is not there."""

    def __init__(self, size: int, threads: int) -> None:
        self._memory = fresh_memory(size).fill_(1)
        self._pool = ThreadPoolExecutor(threads)
        self._find = ctypes.CDLL(None).memchr
        self._find.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
        self._find.restype = ctypes.c_void_p
        begin, step = self._memory.data_ptr(), -(-size // threads)
        self._parts = [(begin + at, min(step, size - at)) for at in range(0, size, step)]

    def read(self) -> None:
        """All of it once, each thread a part; the interpreter's lock is free meanwhile."""
        found = self._pool.map(lambda part: self._find(part[0], 0, part[1]), self._parts)
        assert not any(found)

    def close(self) -> None:
        self._pool.shutdown()


def in_turns(runs: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """The median seconds of each of ``runs``, one after another, round by round."""
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds + 1):
        for run, taken in zip(runs, times, strict=True):
            began = perf_counter()
            run()
            if number:  # the first round warms up
                taken.append(perf_counter() - began)
    return [median(taken) for taken in times]


def layers_for(shape: Shape, sequences: int, tokens: int, total: int) -> int:
    """So many that a case has about ``total`` bytes of keys and values."""
    size = sequences * tokens * shape.numbers_per_token * DTYPE.itemsize
    return max(total // size, 1)


def measure_read(
    backend: CpuBackend, shape: Shape, sequences: int, tokens: int, rounds: int, total: int
) -> ReadResult:
    """Decode attention over scattered pages, beside a read of as many bytes."""
    layers = layers_for(shape, sequences, tokens, total)
    memory = filled_memory(layers * sequences * tokens * shape.numbers_per_token)
    case = Case(shape, memory, sequences, tokens, PAGE_SIZE, scattered=True)
    reader = Reader(case.cache.nbytes, backend.threads)
    attended, read = in_turns([lambda: case.attend(backend), reader.read], rounds)
    reader.close()
    speeds = [case.cache.nbytes / seconds / 1e9 for seconds in (attended, read)]
    return ReadResult(shape.name, sequences, tokens, backend.threads, *speeds)


def measure_paged(
    backend: CpuBackend,
    shape: Shape,
    sequences: int,
    tokens: int,
    page_size: int,
    rounds: int,
    total: int,
) -> PagedResult:
    """The same attention over one page a sequence, pages in order, and pages in any order: all of
    the same memory, for one piece of memory may be quicker than the next.
    """
    layers = layers_for(shape, sequences, tokens, total)
    memory = filled_memory(layers * sequences * tokens * shape.numbers_per_token)
    cases = [
        Case(shape, memory, sequences, tokens, size, scattered=scattered)
        for size, scattered in ((tokens, False), (page_size, False), (page_size, True))
    ]
    runs = [lambda case=case: case.attend(backend) for case in cases]
    milliseconds = [1000 * seconds for seconds in in_turns(runs, rounds)]
    return PagedResult(shape.name, sequences, tokens, page_size, backend.threads, *milliseconds)


def table(reads: Sequence[ReadResult], pages: Sequence[PagedResult]) -> list[str]:
    """Both as lines of text."""
    lines = [
        f"{'decode attention':<16}{'sequences × tokens':>20}{'GB/s':>8}{'read':>8}{'share':>8}"
    ]
    lines += [
        f"{each.shape:<16}{f'{each.sequences} × {each.tokens:,}':>20}{each.attention_gb_s:>8.1f}"
        f"{each.read_gb_s:>8.1f}{each.share:>8.0%}"
        for each in reads
    ]
    heads = f"{'page':>6}{'one page, ms':>14}{'in order':>10}{'scattered':>11}"
    heads += f"{'overhead':>10}{'of order':>10}"
    lines += ["", f"{'page tables':<16}{'sequences × tokens':>20}{heads}"]
    lines += [
        f"{each.shape:<16}{f'{each.sequences} × {each.tokens:,}':>20}{each.page_size:>6}"
        f"{each.contiguous_ms:>14.2f}"
        f"{each.in_order_ms:>10.2f}{each.scattered_ms:>11.2f}{each.overhead:>10.1%}"
        f"{each.overhead_of_order:>10.1%}"
        for each in pages
    ]
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pagedd_kernels.cpu.bench")
    parser.add_argument("--threads", type=int, help="default: one for each core")
    parser.add_argument("--rounds", type=int, default=15, help="of each measurement (default: 15)")
    parser.add_argument(
        "--page-size",
        type=int,
        action="append",
        choices=[1 << i for i in range(10)],
        help=f"repeatable (default: {PAGE_SIZE})",
    )
    parser.add_argument("--mib", type=int, default=TOTAL_BYTES >> 20, help="keys and values a case")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    reason = CpuBackend.unavailable(torch.device("cpu"), torch.bfloat16)
    if reason is not None:
        print(f"the compiled kernels cannot be used: {reason}", file=sys.stderr)
        return 1
    backend = CpuBackend(args.threads or default_threads())
    total = args.mib << 20
    print(f"{backend.isa}, {backend.threads} threads, bfloat16\n")
    reads = [
        measure_read(backend, shape, *case, args.rounds, total)
        for shape in SHAPES
        for case in READ_CASES
    ]
    pages = [
        measure_paged(backend, shape, *case, page_size, args.rounds, total)
        for shape in SHAPES
        for page_size in args.page_size or [PAGE_SIZE]
        for case in PAGED_CASES
    ]
    print("\n".join(table(reads, pages)))
    if args.json:
        figures = {
            "isa": backend.isa,
            "read": [asdict(each) | {"share": each.share} for each in reads],
            "paged": [
                asdict(each)
                | {"overhead": each.overhead, "overhead_of_order": each.overhead_of_order}
                for each in pages
            ],
        }
        with open(args.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
