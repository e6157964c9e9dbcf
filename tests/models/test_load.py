"""Dispatch: formats, dtypes, devices, progress, dummy weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pagedd.engine.messages import EngineConfig
from pagedd.errors import ModelNotFound, UsageError
from pagedd.models.dummy import DummyWeights
from pagedd.models.load import load_model
from pagedd.models.spec import tensor_shapes
from tests.models.paged import Paged, load, run, tokens_of
from tests.tiny.models import KINDS, build, edit_config


@pytest.mark.parametrize(
    ("stored", "asked", "expected"),
    [
        ("float32", "auto", torch.float32),
        ("bfloat16", "auto", torch.bfloat16),
        ("float16", "auto", torch.bfloat16),
        ("float32", "bfloat16", torch.bfloat16),
        ("bfloat16", "float32", torch.float32),
    ],
)
def test_activation_dtype(stored: str, asked: str, expected: torch.dtype, tmp_path: Path) -> None:
    folder = edit_config(build("llama", tmp_path), dtype=stored)
    loaded = load(folder, dtype=asked)
    assert loaded.spec.dtype == expected
    assert loaded.model.embedding.dtype == expected


def test_old_key_for_the_dtype(tmp_path: Path) -> None:
    folder = edit_config(build("llama", tmp_path), drop=["dtype"], torch_dtype="bfloat16")
    assert load(folder, dtype="auto").spec.dtype == torch.bfloat16


def test_progress_rises_to_one(tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    config = EngineConfig(model=str(build("llama", tmp_path)), device="cpu")
    load_model(config, lambda phase, fraction: seen.append((phase, fraction)))
    assert seen[0] == ("weights", 0.0)
    assert seen[-1] == ("weights", 1.0)
    assert [fraction for _, fraction in seen] == sorted(fraction for _, fraction in seen)


def test_backends_that_refused_are_named(tmp_path: Path) -> None:
    loaded = load(build("llama", tmp_path))
    assert loaded.device == torch.device("cpu")
    assert all(name and reason for name, reason in loaded.refused)
    assert loaded.backend.name not in dict(loaded.refused)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "int8"}, {"device": "tpu"}, {"load_format": "pickle"}, {"kv_cache_dtype": "fp4"}],
)
def test_unknown_choices_are_usage_errors(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=next(iter(options.values()))):
        load(build("llama", tmp_path), **options)


def test_who_has_no_cache_in_8_bits_refuses_it_by_name(tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    with pytest.raises(UsageError, match="--kv-cache-dtype fp8_e4m3 needs a GPU"):
        load(folder, device="cpu", kv_cache_dtype="fp8_e4m3")


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        load(tmp_path / "nothing")


@pytest.mark.parametrize("kind", KINDS)
def test_dummy_needs_no_weights_and_is_deterministic(kind: str, tmp_path: Path) -> None:
    folder = build(kind, tmp_path)
    (folder / "model.safetensors").unlink()
    tokens = tokens_of(1, 12)
    first, second, other = (
        run(
            Paged(load(folder, load_format="dummy", seed=seed)),
            tokens,
            prompt_len=8,
            chunk=3,
        )
        for seed in (1, 1, 2)
    )
    assert first.equal(second)
    assert not first.equal(other)
    assert first.isfinite().all()


def test_dummy_tensors_have_the_shapes_of_the_model(tmp_path: Path) -> None:
    spec = load(build("qwen3", tmp_path)).spec
    weights = DummyWeights(spec, seed=3)
    assert weights.names() == tensor_shapes(spec).keys()
    for name, shape in tensor_shapes(spec).items():
        tensor = weights.get(name)
        assert tuple(tensor.shape) == shape == weights.shape(name)
        assert (tensor.mean() > 0.9) == name.endswith("norm.weight")


def test_large_dummy_rows_differ(tmp_path: Path) -> None:
    folder = edit_config(build("llama", tmp_path), hidden_size=1024, vocab_size=2048)
    weights = DummyWeights(load(folder, load_format="dummy").spec)
    assert weights.get("lm_head.weight").unique(dim=0).shape[0] == 2048
