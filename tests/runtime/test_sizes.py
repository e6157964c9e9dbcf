"""A cache that cannot be is refused in one line before it is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

import pagedd.models.load
import pagedd.text.prepare
from pagedd.engine.main import build_engine
from pagedd.engine.messages import EngineConfig
from pagedd.errors import UsageError
from tests.runtime.harness import Bench
from tests.tiny.models import build


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("llama", tmp_path_factory.mktemp("model") / "llama")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_pages": 2**31 - 1}, r"--num-pages 2,147,483,647: [\d,]+ bytes is more than the"),
        ({"kv_cache_memory": 2**60}, r"--kv-cache-memory [\d,]+ bytes is more than the"),
        ({"kv_cache_memory": 4096, "page_size": 64}, "no memory for one page of 32,768 bytes"),
        ({"num_pages": 1, "page_size": 1}, "the cache has room for 1 token"),
    ],
)
def test_sizes_that_cannot_be(model: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Bench(model, **config)


def test_the_number_of_pages_is_measured_by_what_is_free(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Free:
        available = 10 * 16 * 512  # ten pages of 16 tokens, 512 bytes each

    monkeypatch.setattr(psutil, "virtual_memory", Free)
    assert Bench(model, num_pages=10, page_size=16).shape.num_pages == 10
    with pytest.raises(UsageError, match="--num-pages 11"):
        Bench(model, num_pages=11, page_size=16)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"swap_space": 2**50},
            r"--swap-space [\d,]+ bytes is more than the [\d,]+ bytes that are",
        ),
        ({"num_host_pages": 2**40}, r"--num-host-pages [\d,]+ bytes is more than the"),
        ({"num_pages": 2**40}, r"--num-pages [\d,]+: [\d,]+ bytes is more than the"),
        ({"max_model_len": 10**6}, "--max-model-len 1,000,000 is more than the model's"),
    ],
)
def test_what_cannot_be_is_refused_before_the_load(
    model: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], message: str
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("weights are read")

    monkeypatch.setattr(pagedd.models.load, "Decoder", load)
    monkeypatch.setattr(pagedd.text.prepare, "prepare", lambda files: "")
    asked = EngineConfig(model=str(model), **config)
    with pytest.raises(UsageError, match=message):
        build_engine(asked, lambda phase, fraction: None)


def test_the_smallest_cache_serves_one_token(model: Path) -> None:
    assert Bench(model, num_pages=2, page_size=1).shape.max_model_len == 2
