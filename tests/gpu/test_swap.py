"""Swapping on a device: pinned memory, a stream of its own, and a host that waits for neither."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from pagedd.core.plan import Chunk, Copy, StepPlan
from pagedd.core.request import SamplingParams
from pagedd.runtime.cuda_streams import CudaStreams, page_copier
from pagedd.runtime.host_cache import HostCache
from pagedd.runtime.stream_swap import MARK_EVERY, StreamSwap
from pagedd_kernels.backend import select_backend
from tests.runtime.harness import Bench
from tests.tiny.models import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = torch.device("cuda")
PAGES = 4 * MARK_EVERY
PAGE = 1 << 20  # numbers of a page: a copy takes longer than a launch
CYCLES = 200_000_000  # about a tenth of a second


class Touched:
    """The page tables of a step that reads and writes ``pages``."""

    def __init__(self, *pages: int) -> None:
        self.pages = pages

    def pages_read(self, chunks: Iterable[Chunk]) -> set[int]:
        return set(self.pages)

    pages_written = pages_read


def plan(**moves: tuple[Copy, ...]) -> StepPlan:
    names = ("swap_out", "copies", "swap_in")
    return StepPlan(0, *(moves.get(name, ()) for name in names), (), (), (), ())


Device = tuple[torch.Tensor, torch.Tensor, StreamSwap[torch.cuda.Event]]


@pytest.fixture
def device() -> Device:
    """A cache whose page p is full of p, host memory for as many pages, and what swaps them."""
    cache = torch.arange(PAGES, device=DEVICE).to(torch.float32)[:, None].repeat(1, PAGE)
    host = HostCache(cache, PAGES, reserve=0)
    assert host.pages.is_pinned()
    backend = select_backend(DEVICE, torch.float32).backend
    streams = CudaStreams(cache, host.pages)
    return cache, host.pages, StreamSwap(streams, page_copier(backend.page_copy, cache))


def full_of(pages: torch.Tensor, values: list[float]) -> bool:
    return torch.equal(pages.cpu(), torch.tensor(values)[:, None].expand(-1, PAGE))


def test_what_a_step_overwrites_is_copied_out_before(device: Device) -> None:
    cache, host, swap = device
    torch.cuda._sleep(CYCLES)
    cache += 1
    out = tuple(Copy(page, PAGES - 1 - page) for page in range(PAGES))
    swap.move(plan(swap_out=out, copies=(Copy(0, 5),)), Touched(3, PAGES - 1))
    cache[[3, PAGES - 1]] = -1.0
    swap.move(plan(), Touched(*range(PAGES)))
    cache[6:] = -2.0
    torch.cuda.synchronize()
    assert full_of(host.flip(0), [float(page + 1) for page in range(PAGES)])
    assert full_of(cache[:6], [1.0, 2.0, 3.0, -1.0, 5.0, 1.0])
    copied = swap.take_copied()
    assert copied.pages == PAGES
    assert copied.seconds > 0
    assert swap.take_copied() == (0, 0.0)


def test_what_a_step_reads_is_copied_in_before(device: Device) -> None:
    cache, host, swap = device
    host.copy_(torch.arange(PAGES)[:, None].expand(-1, PAGE) + 100.0)
    torch.cuda._sleep(CYCLES)
    seen = cache.clone()  # what used the pages before
    swap.move(plan(swap_in=tuple(Copy(page, page) for page in range(PAGES))), Touched())
    swap.move(plan(copies=(Copy(7, PAGES - 1),)), Touched(*range(PAGES)))
    read = cache.clone()
    torch.cuda.synchronize()
    assert full_of(seen, [float(page) for page in range(PAGES)])
    assert full_of(read, [*(page + 100.0 for page in range(PAGES - 1)), 107.0])


def test_out_and_in_again_at_once(device: Device) -> None:
    cache, _, swap = device
    for turn in range(20):
        out = tuple(Copy(page, (page + turn) % PAGES) for page in range(PAGES))
        swap.move(plan(swap_out=out), Touched(*range(0, PAGES, 3)))
        cache[::3] = -1.0
        back = tuple(Copy(dst, (src + 1) % PAGES) for src, dst in out)
        swap.move(plan(swap_in=back), Touched(*range(PAGES)))
    torch.cuda.synchronize()
    assert full_of(cache, [float((page - 20) % PAGES) for page in range(PAGES)])


def test_the_host_waits_for_nothing(device: Device) -> None:
    _, _, swap = device
    for moves in (
        {"swap_out": (Copy(1, 1),)},
        {"copies": (Copy(2, 3),)},
        {"swap_in": (Copy(1, 4),)},
    ):
        swap.move(plan(**moves), Touched())  # whatever is set up at the first time
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    out = tuple(Copy(page, page) for page in range(PAGES))
    swap.move(plan(swap_out=out, copies=(Copy(2, 3),)), Touched(2))
    swap.move(plan(swap_in=(Copy(1, 4),)), Touched(4))
    swap.take_copied()
    assert not torch.cuda.current_stream().query(), "the device is still at what came before"
    torch.cuda.synchronize()


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_pool_that_is_short_changes_no_answer(tmp_path: Path, prefix_cache: bool) -> None:
    requests = [
        (list(range(5 + i, 25 + 3 * i)), SamplingParams(max_tokens=40, seed=i)) for i in range(8)
    ]
    roomy = Bench(build("llama", tmp_path / "llama"), num_pages=200, page_size=16, device="cuda")
    tight = Bench(
        roomy.loaded,
        num_pages=12,
        page_size=16,
        preemption_mode="swap",
        prefix_cache=prefix_cache,
        device="cuda",
        swap_in_pages=1,
    )
    expected = [[choice.tokens for choice in choices] for choices in roomy.run(requests)]
    assert [[choice.tokens for choice in choices] for choices in tight.run(requests)] == expected
    assert tight.scheduler.stats().preemptions_swap >= 2
