"""How much swap space there is, and the copies themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pagedd.core.plan import Copy
from pagedd.errors import UsageError
from pagedd.runtime.build import SWAP_POOLS
from pagedd.runtime.host_cache import HostCache
from pagedd_kernels.reference import TorchBackend
from tests.runtime.harness import Bench
from tests.tiny.models import build


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


def test_whole_pages_go_out_and_come_back() -> None:
    cache = torch.arange(4 * 6, dtype=torch.float32).reshape(4, 2, 3).contiguous()
    before = cache.clone()
    host = HostCache(cache, 2, TorchBackend())
    assert host.take_seconds() is None
    host.swap_out((Copy(3, 0), Copy(1, 1)))
    cache.zero_()
    host.swap_in((Copy(0, 2), Copy(1, 0)))
    assert torch.equal(cache[2], before[3])
    assert torch.equal(cache[0], before[1])
    assert not cache[1].any()
    assert not cache[3].any()
    seconds = host.take_seconds()
    assert seconds is not None
    assert seconds > 0
    assert host.take_seconds() is None
