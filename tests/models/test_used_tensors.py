"""Every bias and norm counts: with it the logits are right, without it they are others (B47)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.paged import Paged, difference, load, run, tokens_of
from tests.tiny.models import build, edit_config

BIASED = {"attention_bias": True, "mlp_bias": True}
CASES: list[tuple[str, dict[str, Any], str]] = [
    *(("qwen2", {}, f"self_attn.{name}_proj.bias") for name in "qkv"),
    *(("llama", BIASED, f"self_attn.{name}_proj.bias") for name in "qkvo"),
    *(("llama", BIASED, f"mlp.{name}_proj.bias") for name in ("gate", "up", "down")),
    ("smollm3", BIASED, "self_attn.o_proj.bias"),
    ("qwen3", {}, "self_attn.q_norm.weight"),
    ("qwen3", {}, "self_attn.k_norm.weight"),
    ("qwen3", {"attention_bias": True}, "self_attn.o_proj.bias"),
    ("llama", {}, "post_attention_layernorm.weight"),
]


@pytest.mark.parametrize(("kind", "options", "name"), CASES)
def test_zeroing_changes_the_logits(
    kind: str, options: dict[str, Any], name: str, tmp_path: Path
) -> None:
    folder = build(kind, tmp_path, **options)
    if kind == "qwen2":
        edit_config(folder, drop=["attention_bias"])
    tokens = tokens_of(1, 20)
    assert difference(folder, tokens, prompt_len=14, chunk=5) < 1e-4
    before = run(Paged(load(folder)), tokens, prompt_len=14, chunk=5)
    tensors = load_file(folder / "model.safetensors")
    tensors[f"model.layers.1.{name}"].zero_()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    after = run(Paged(load(folder)), tokens, prompt_len=14, chunk=5)
    assert (after - before).abs().max() > 1e-2
    assert difference(folder, tokens, prompt_len=14, chunk=5) < 1e-4


def test_layers_without_rope_do_not_rotate(tmp_path: Path) -> None:
    rotated = build("smollm3", tmp_path / "all", no_rope_layers=[1, 1])
    mixed = build("smollm3", tmp_path / "mixed", no_rope_layers=[0, 1])
    tokens = tokens_of(2, 20)
    assert load(mixed).spec.rope_layers == (False, True)
    assert difference(mixed, tokens, prompt_len=14, chunk=5) < 1e-4
    logits = [run(Paged(load(f)), tokens, prompt_len=14, chunk=5) for f in (rotated, mixed)]
    assert not torch.allclose(logits[0][1:], logits[1][1:], atol=1e-2)
