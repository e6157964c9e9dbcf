"""How much swap space there is, and the copies themselves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from pagedd.core.plan import Chunk, Copy, StepPlan
from pagedd.core.request import SamplingParams
from pagedd.errors import UsageError
from pagedd.runtime.cuda_streams import runs
from pagedd.runtime.deferred_swap import DeferredSwap
from pagedd.runtime.host_cache import HostCache
from pagedd.runtime.host_memory import Populated, map_zeros
from pagedd.runtime.sizes import SWAP_POOLS
from pagedd_kernels.reference import TorchBackend
from tests.runtime.harness import Bench
from tests.tiny.models import build


class NoChunks:
    """The page tables of a step that computes nothing."""

    def pages_read(self, chunks: Iterable[Chunk]) -> set[int]:
        return set()

    pages_written = pages_read


NO_CHUNKS = NoChunks()


def plan(swap_out: tuple[Copy, ...] = (), swap_in: tuple[Copy, ...] = ()) -> StepPlan:
    return StepPlan(0, swap_out, (), swap_in, (), (), (), ())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("llama", tmp_path_factory.mktemp("tiny") / "llama")


def host_pages(path: Path, **config: object) -> int:
    bench = Bench(path, num_pages=6, page_size=8, **config)
    pages = bench.runner.host_cache.pages
    assert pages.shape[1:] == bench.runner.cache.shape[1:]
    assert len(pages) == bench.shape.num_host_pages == bench.scheduler.stats().host_pages.total
    return len(pages)


def test_by_default_a_small_pool_gets_a_few_times_its_own_size(tiny: Path) -> None:
    assert host_pages(tiny) == SWAP_POOLS * 6


def test_the_number_of_pages_comes_before_the_size(tiny: Path) -> None:
    page_bytes = Bench(tiny, num_pages=6, page_size=8).shape.page_bytes
    assert host_pages(tiny, swap_space=page_bytes * 10 - 1) == 9
    assert host_pages(tiny, swap_space=0) == 0
    assert host_pages(tiny, swap_space=page_bytes, num_host_pages=3) == 3
    assert host_pages(tiny, num_host_pages=0) == 0


def test_who_never_swaps_needs_no_space(tiny: Path) -> None:
    assert host_pages(tiny, preemption_mode="recompute") == 0


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        ({"swap_space": 1 << 60}, "--swap-space"),
        ({"num_host_pages": 2**31 - 1}, "--num-host-pages"),
    ],
)
def test_more_than_is_free_is_one_clear_line(tiny: Path, asked: dict[str, int], flag: str) -> None:
    with pytest.raises(UsageError, match=flag) as raised:
        Bench(tiny, num_pages=6, page_size=64, **asked)
    assert "are free" in raised.value.message
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_whole_pages_go_out_and_come_back(dtype: torch.dtype) -> None:
    cache = torch.arange(4 * 6, dtype=torch.float32).reshape(4, 2, 3).to(dtype)
    before = cache.clone()
    host = HostCache(cache, 2, reserve=1)
    assert host.pages.shape == (2, 2, 3)
    assert not host.pages.any()
    swap = DeferredSwap(cache, host.pages, TorchBackend())
    assert swap.take_copied() == (0, 0.0)
    swap.move(plan(swap_out=(Copy(3, 0), Copy(1, 1))), NO_CHUNKS)
    cache.zero_()
    swap.move(plan(swap_in=(Copy(0, 2), Copy(1, 0))), NO_CHUNKS)
    assert torch.equal(cache[2], before[3])
    assert torch.equal(cache[0], before[1])
    assert not cache[1].any()
    assert not cache[3].any()
    copied = swap.take_copied()
    assert copied.pages == 4
    assert copied.seconds > 0
    assert swap.take_copied() == (0, 0.0)


def test_no_swap_space_takes_no_memory() -> None:
    host = HostCache(torch.zeros(4, 2, 3), 0, reserve=2)
    assert host.pages.shape == (0, 2, 3)
    host.use(())


def test_a_step_copies_out_no_more_than_it_may() -> None:
    cache = torch.arange(6.0).reshape(6, 1)
    host = torch.zeros(6, 1)
    swap = DeferredSwap(cache, host, TorchBackend(), step_bytes=2 * 4)
    swap.move(plan(swap_out=tuple(Copy(page, page) for page in range(6))), NO_CHUNKS)
    seen = []
    while (copied := swap.take_copied().pages) > 0:
        seen.append((copied, host.flatten().tolist()))
        swap.move(plan(), NO_CHUNKS)
    assert [copied for copied, _ in seen] == [2, 2, 2]
    assert seen[0][1] == [0, 1, 0, 0, 0, 0]
    assert seen[2][1] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["swap", "auto"])
def test_copies_put_off_change_no_answer(tiny: Path, mode: str) -> None:
    requests = [
        (list(range(5 + i, 25 + 3 * i)), SamplingParams(max_tokens=30, seed=i)) for i in range(8)
    ]
    roomy = Bench(tiny, num_pages=200, page_size=8)
    tight = Bench(
        roomy.loaded, num_pages=20, page_size=8, preemption_mode=mode, lazy=True, swap_in_pages=1
    )
    expected = roomy.run(requests)
    assert tight.run(requests) == expected
    assert tight.scheduler.stats().preemptions_swap >= 2


def test_neighbours_are_copied_at_once() -> None:
    copies = [Copy(7, 1), Copy(3, 4), Copy(4, 5), Copy(6, 6), Copy(5, 6), Copy(8, 3)]
    assert list(runs(copies)) == [(3, 4, 3), (6, 6, 1), (7, 1, 1), (8, 3, 1)]
    assert list(runs([])) == []


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@needs_linux
def test_memory_comes_when_it_is_used_or_before() -> None:
    size, slack = 64 << 20, 8 << 20
    before = resident()
    pages = map_zeros((64, 1 << 20), torch.uint8)
    assert resident() - before < slack
    pages[3] = 5
    populated = Populated(pages)
    populated.extend(40 << 20, limit=16 << 20)
    assert populated.end == 16 << 20
    populated.extend(40 << 20, limit=size)
    assert populated.end == 40 << 20
    assert abs(resident() - before - (40 << 20)) < slack
    populated.extend(2 * size, limit=2 * size)
    assert populated.end == size
    assert abs(resident() - before - size) < slack
    assert pages[3].eq(5).all()
    assert not pages[4:].any()


@needs_linux
def test_as_much_swap_space_is_ready_as_the_next_swaps_may_need() -> None:
    cache = torch.zeros(1, 2 << 20, dtype=torch.uint8)
    slack = 6 << 20
    before = resident()
    host = HostCache(cache, 40, reserve=10)
    assert abs(resident() - before - (20 << 20)) < slack
    host.use((Copy(0, 4),))
    for _ in range(20):
        host.use(())
    assert abs(resident() - before - (30 << 20)) < slack
    host.use((Copy(0, 39),))
    for _ in range(40):
        host.use(())
    assert abs(resident() - before - (80 << 20)) < slack
