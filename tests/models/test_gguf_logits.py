"""GGUF and safetensors of the same weights give the same logits and the same greedy text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.gguf_writer import QType, write_checkpoint
from tests.models.paged import Held, Paged, load, run, tokens_of
from tests.tiny.models import build

GQA = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-gqa-8-2": ("llama", GQA),
    "llama-bias": ("llama", {**GQA, "attention_bias": True}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 4}),
}
TOLERANCE = 1e-4


def logits_of(model: Path) -> Tensor:
    return run(Paged(load(model)), tokens_of(3, 64), prompt_len=40, chunk=17)


def greedy(model: Path, count: int) -> list[int]:
    paged = Paged(load(model))
    text = tokens_of(4, 5)
    held, pending = Held(prompt_len=5), list(text)
    for _ in range(count):
        (logits,) = paged.step([(held, pending)])
        pending = [int(logits[-1].argmax())]
        text += pending
    return text


@pytest.mark.parametrize("name", MODELS)
def test_f32_gives_the_same_logits_and_text(tmp_path: Path, name: str) -> None:
    kind, changes = MODELS[name]
    folder = build(kind, tmp_path / "folder", **changes)
    path = write_checkpoint(folder, tmp_path / "m.gguf")
    assert (logits_of(path) - logits_of(folder)).abs().max() < TOLERANCE
    assert greedy(path, 64) == greedy(folder, 64)


# Share of the logits' own spread (their standard deviation is about 5).
@pytest.mark.parametrize(("qtype", "bound"), [(QType.F16, 0.01), (QType.Q8_0, 0.2)])
@pytest.mark.parametrize("name", ["llama-gqa-8-2", "qwen2"])
def test_narrow_types_stay_near(tmp_path: Path, name: str, qtype: QType, bound: float) -> None:
    kind, changes = MODELS[name]
    folder = build(kind, tmp_path / "folder", **changes)
    expected = logits_of(folder)
    found = logits_of(write_checkpoint(folder, tmp_path / "m.gguf", qtype))
    assert (found - expected).std() < bound * expected.std()


SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": (
        {"rope_type": "linear", "factor": 4.0},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
        },
    ),
    "yarn-attention-factor": (
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "attention_factor": 1.0,
        },
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.yarn_attn_factor": 1.0,
        },
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_rope_scaling_is_honoured(tmp_path: Path, kind: str, name: str) -> None:
    config, keys = SCALINGS[name]
    rope = {"rope_theta": 10000.0, **config}
    folder = build(kind, tmp_path / "folder", rope_parameters=rope)
    metadata = {f"{kind}.{key}": value for key, value in keys.items()}
    path = write_checkpoint(folder, tmp_path / "m.gguf", metadata=metadata)
    expected = logits_of(folder)
    assert (logits_of(path) - expected).abs().max() < TOLERANCE
    without = logits_of(write_checkpoint(folder, tmp_path / "plain.gguf"))
    assert (without - expected).abs().max() > 100 * TOLERANCE


def test_llama3_scaling_as_a_tensor_of_divisors(tmp_path: Path) -> None:
    rope = {
        "rope_theta": 10000.0,
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    folder = build("llama", tmp_path / "folder", rope_parameters=rope)
    divisors = llama3_divisors(head_dim=16, theta=10000.0, factor=8.0, length=32)
    assert divisors[0] == 1.0
    assert divisors[-1] == 8.0
    path = write_checkpoint(folder, tmp_path / "m.gguf", tensors={"rope_freqs.weight": divisors})
    expected = logits_of(folder)
    assert (logits_of(path) - expected).abs().max() < TOLERANCE
    without = logits_of(write_checkpoint(folder, tmp_path / "plain.gguf"))
    assert (without - expected).abs().max() > 100 * TOLERANCE


def llama3_divisors(
    *, head_dim: int, theta: float, factor: float, length: int
) -> np.ndarray[Any, Any]:
    """What the usual converter writes for Llama 3's scaling with frequency factors 1 and 4."""
    divisors = []
    for pair in range(head_dim // 2):
        wave = 2 * torch.pi * theta ** (2 * pair / head_dim)
        smooth = (length / wave - 1.0) / 3.0
        within = 1 / ((1 - smooth) / factor + smooth)
        divisors.append(1.0 if wave < length / 4 else factor if wave > length else within)
    return np.array(divisors, dtype=np.float32)
