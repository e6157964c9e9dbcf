"""What a model needs beside the pages, measured on a fake device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pagedd.engine.messages import EngineConfig
from pagedd.errors import UsageError
from pagedd.models.load import load_model
from pagedd.runtime.footprint import GIB, Footprint, largest_step, measure
from pagedd.runtime.sizes import decide_shape
from tests.tiny.models import build


class Device:
    """Holds what it is told; a step takes some and gives it back, a capture keeps some."""

    total = 80 * GIB

    def __init__(self) -> None:
        self.here = 17 * GIB  # weights 15, trial 1, driver 1
        self.tensors = 16 * GIB
        self.most = 99 * GIB  # before the reset

    def used(self) -> int:
        return self.here

    def allocated(self) -> int:
        return self.tensors

    def peak(self) -> int:
        return self.most

    def reset(self) -> None:
        self.most = self.tensors

    def step(self) -> None:
        self.most = self.tensors + 5 * GIB

    def capture(self) -> None:
        self.here += 2 * GIB


def test_the_pages_get_what_is_left() -> None:
    device = Device()
    found = measure(device, 15 * GIB, 1 * GIB, device.step, device.capture)
    assert found == Footprint(80 * GIB, 16 * GIB, 15 * GIB, 5 * GIB, 2 * GIB)
    assert found.left(0.9) == (72 - 16 - 5 - 2) * GIB
    assert found.note(0.9, 49 * GIB) == (
        "GPU memory, GiB: weights 15.00, activations 5.00, graphs 2.00, pages 49.00, "
        "driver and others 1.00; 90% of 80.00 may be filled"
    )


def test_without_graphs() -> None:
    device = Device()
    assert measure(device, 15 * GIB, 0, device.step, None).graphs == 0


@pytest.mark.parametrize(
    ("seqs", "tokens", "longest"), [(4, 32, 64), (4, 32, 9), (8, 5, 64), (1, 16, 64), (3, 100, 12)]
)
def test_the_largest_step(seqs: int, tokens: int, longest: int) -> None:
    plan = largest_step(seqs, tokens, longest, 4)
    lengths = [chunk.length for chunk in plan.chunks]
    assert len(lengths) == min(seqs, tokens)
    assert lengths == sorted(lengths)
    assert min(lengths) >= 1
    assert max(lengths) < longest
    assert sum(lengths) == min(tokens, seqs * (longest - 1))
    assert [len(join.pages) * 4 >= len(join.tokens) for join in plan.join] == [True] * len(lengths)


def test_sizes_by_the_footprint(tmp_path: Path) -> None:
    loaded = load_model(
        EngineConfig(model=str(build("llama", tmp_path / "llama")), device="cpu"),
        lambda phase, fraction: None,
    )
    size = loaded.spec.kv_bytes_per_token() * 8
    found = Footprint(100 * size, 20 * size, 10 * size, 5 * size, 5 * size)
    config = EngineConfig(model="m", page_size=8, gpu_memory_utilization=0.5, num_host_pages=0)
    shape = decide_shape(config, loaded.spec, torch.device("cpu"), (), found)
    assert shape.num_pages == 20
    assert shape.notes[0].startswith("GPU memory, GiB: weights ")
    more = EngineConfig(model="m", page_size=8, num_pages=70, num_host_pages=0)
    assert decide_shape(more, loaded.spec, torch.device("cpu"), (), found).num_pages == 70
    most = EngineConfig(model="m", page_size=8, num_pages=71, num_host_pages=0)
    with pytest.raises(UsageError, match="--num-pages 71"):
        decide_shape(most, loaded.spec, torch.device("cpu"), (), found)
