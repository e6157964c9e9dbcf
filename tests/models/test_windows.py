"""Sliding windows against transformers around the edge of the window (B49)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagedd.errors import ModelError
from pagedd.models.config import read_spec
from tests.models.paged import Paged, difference, load, reference, reference_model, run, tokens_of
from tests.tiny.models import build, edit_config


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("mistral", tmp_path_factory.mktemp("mistral"), sliding_window=8)


@pytest.mark.parametrize("length", [7, 8, 9, 16, 40])
def test_window_edge_in_any_chunking(mistral: Path, length: int) -> None:
    tokens = tokens_of(length, length)
    expected = reference(reference_model(mistral), tokens, prompt_len=length)
    loaded = load(mistral)
    for chunk in (1, 3, 8):
        found = run(Paged(loaded, page_size=4), tokens, prompt_len=length, chunk=chunk)
        assert (found - expected).abs().max() < 1e-4, f"chunk {chunk}"


def test_window_is_left_while_decoding(mistral: Path) -> None:
    assert difference(mistral, tokens_of(1, 46), prompt_len=5, chunk=3) < 1e-4


def test_the_window_matters(mistral: Path, tmp_path: Path) -> None:
    tokens = tokens_of(2, 20)
    windowed = run(Paged(load(mistral)), tokens, prompt_len=20, chunk=20)
    without = load(build("mistral", tmp_path, sliding_window=None))
    assert without.spec.windows == (0, 0)
    full = run(Paged(without), tokens, prompt_len=20, chunk=20)
    assert (windowed - full)[:8].abs().max() < 1e-4
    assert ((windowed - full)[8:].abs().amax(-1) > 1e-2).all()


@pytest.mark.parametrize(
    ("kind", "options", "windows"),
    [
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, (0, 8)),
        ("qwen2", {"use_sliding_window": False, "max_window_layers": 0}, (0, 0)),
        (
            "qwen3",
            {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]},
            (8, 0),
        ),
        ("smollm3", {"use_sliding_window": True}, (0, 8)),
        ("smollm3", {"use_sliding_window": False}, (0, 0)),
    ],
)
def test_windows_by_layer(
    kind: str, options: dict[str, Any], windows: tuple[int, ...], tmp_path: Path
) -> None:
    folder = build(kind, tmp_path, sliding_window=8, **options)
    assert read_spec(folder, "x").windows == windows
    assert difference(folder, tokens_of(3, 40), prompt_len=21, chunk=3) < 1e-4


@pytest.mark.parametrize(
    ("kind", "changes", "windows"),
    [
        ("mistral", {"sliding_window": None}, (0, 0)),
        ("mistral", {}, (4096, 4096)),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}, (4096, 4096)),
        ("qwen3", {"use_sliding_window": True}, (0, 0)),
    ],
)
def test_missing_keys_mean_what_the_reference_means(
    kind: str, changes: dict[str, Any], windows: tuple[int, ...], tmp_path: Path
) -> None:
    drop = ["sliding_window", "max_window_layers", "layer_types", "use_sliding_window"]
    folder = edit_config(build(kind, tmp_path), drop=drop)
    assert read_spec(edit_config(folder, **changes), "x").windows == windows


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("qwen2", {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": False}),
        ("qwen2", {"layer_types": ["full_attention"]}),
        ("qwen3", {"layer_types": ["full_attention", "chunked_attention"]}),
        ("mistral", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("llama", {"layer_types": ["sliding_attention"] * 2}),
        ("llama", {"sliding_window": 8}),
        ("mistral", {"sliding_window": 0}),
    ],
)
def test_contradictory_windows_are_refused(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    folder = edit_config(build(kind, tmp_path), **changes)
    with pytest.raises(ModelError, match=r"layer_types|sliding_window"):
        read_spec(folder, "x")
