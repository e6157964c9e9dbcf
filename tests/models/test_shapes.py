"""Head sizes that are no hidden/heads and no power of two, group sizes, page sizes (B44)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagedd.errors import ModelError
from pagedd.models.config import read_spec
from tests.models.paged import Paged, difference, load, run, tokens_of
from tests.tiny.models import build, edit_config

# head_dim, query heads, KV heads, page size: every pair of neighbouring columns' values meets
COMBINATIONS = [
    (16, 4, 4, 1),
    (24, 4, 1, 5),
    (32, 7, 1, 16),
    (80, 8, 8, 48),
    (96, 4, 4, 5),
    (16, 7, 1, 48),
    (24, 8, 8, 16),
    (80, 4, 1, 1),
    (96, 7, 1, 1),
    (32, 8, 8, 5),
]


@pytest.mark.parametrize(("head_dim", "heads", "kv_heads", "page_size"), COMBINATIONS)
def test_logits(head_dim: int, heads: int, kv_heads: int, page_size: int, tmp_path: Path) -> None:
    folder = build(
        "qwen3",
        tmp_path,
        head_dim=head_dim,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
    )
    tokens = tokens_of(4, 60)
    found = difference(folder, tokens, prompt_len=20, chunk=7, page_size=page_size)
    assert found < 1e-4


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "smollm3"])
@pytest.mark.parametrize("written", ["missing", "null"])
def test_head_dim_left_out(kind: str, written: str, tmp_path: Path) -> None:
    folder = build(kind, tmp_path)
    tokens = tokens_of(5, 20)
    expected = difference(folder, tokens, prompt_len=12, chunk=5)
    before = run(Paged(load(folder)), tokens, prompt_len=12, chunk=5)
    edit_config(folder, drop=["head_dim"])
    if written == "null":
        edit_config(folder, head_dim=None)
    after = run(Paged(load(folder)), tokens, prompt_len=12, chunk=5)
    assert expected < 1e-4
    assert after.equal(before)


def test_weights_are_unchanged_by_running(tmp_path: Path) -> None:
    loaded = load(build("qwen3", tmp_path, head_dim=80))
    tokens = tokens_of(6, 50)
    first = run(Paged(loaded, page_size=5), tokens, prompt_len=9, chunk=4)
    second = run(Paged(loaded, page_size=5), tokens, prompt_len=9, chunk=4)
    assert first.equal(second)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"head_dim": 15}, "head_dim is 15"),
        ({"head_dim": -2}, "head_dim is -2"),
        ({"num_key_value_heads": 3}, "num_key_value_heads (3)"),
        ({"head_dim": None, "num_attention_heads": 6, "num_key_value_heads": 2}, "hidden_size"),
    ],
)
def test_impossible_shapes_are_refused(
    changes: dict[str, object], named: str, tmp_path: Path
) -> None:
    folder = edit_config(build("llama", tmp_path), **changes)
    with pytest.raises(ModelError) as caught:
        read_spec(folder, "x")
    assert named in caught.value.message
