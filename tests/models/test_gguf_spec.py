"""A metadata key is honoured or refused by name, never dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagedd.errors import ModelError
from pagedd.models.gguf import GgufWeights, load_gguf_spec
from pagedd.models.spec import ModelSpec
from tests.models.gguf_writer import write_checkpoint
from tests.tiny.models import build


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("qwen3", tmp_path_factory.mktemp("qwen3"))


def spec_with(folder: Path, tmp_path: Path, **options: Any) -> ModelSpec:
    return load_gguf_spec(write_checkpoint(folder, tmp_path / "m.gguf", **options))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"general.architecture": "gemma3"}, "architecture gemma3.*supported: llama"),
    "experts": ({"llama.expert_count": 8}, "llama.expert_count = 8"),
    "softcap": ({"llama.attn_logit_softcapping": 50.0}, "llama.attn_logit_softcapping = 50"),
    "final softcap": ({"llama.final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    "logit scale": ({"llama.logit_scale": 0.5}, "llama.logit_scale = 0.5"),
    "attention scale": ({"llama.attention.scale": 0.5}, r"attention.scale = 0.5 is not head_dim"),
    "not causal": ({"llama.attention.causal": False}, "llama.attention.causal = False"),
    "unheard of": ({"llama.new_trick": 1}, "llama.new_trick = 1 is not supported"),
    "longrope": ({"llama.rope.scaling.type": "longrope"}, "rope.scaling.type = longrope"),
    "no factor": ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.factor"),
    "partial rope": ({"llama.rope.dimension_count": 8}, "rope.dimension_count = 8"),
    "odd rope": ({"llama.rope.dimension_count": 7}, "must be even"),
    "attention factor": ({"llama.rope.scaling.attn_factor": 1.5}, "rope.scaling.attn_factor"),
    "value length": ({"llama.attention.value_length": 8}, "attention.value_length = 8"),
    "kv heads": ({"llama.attention.head_count_kv": 3}, "does not divide 4 heads"),
    "no layers": ({"llama.block_count": None}, "lacks the metadata key llama.block_count"),
    "zero layers": ({"llama.block_count": 0}, "llama.block_count = 0 is not a positive integer"),
    "text as number": ({"llama.rope.freq_base": "much"}, "freq_base = much is not a number"),
    "infinite": ({"llama.rope.freq_base": float("inf")}, "freq_base = inf is not finite"),
    "per layer": ({"llama.attention.head_count_kv": [2, 4]}, "differs between layers"),
    "vocabulary": ({"llama.vocab_size": 299}, "vocab_size = 299 contradicts the 300 rows"),
    "width": ({"llama.embedding_length": 32}, "token_embd.weight has the shape.*contradicts"),
    "tokens": ({"tokenizer.ggml.tokens": ["x"] * 301}, "301 tokens contradict the 300 rows"),
    "adapter": ({"general.type": "adapter"}, "holds a GGUF adapter"),
    "parts": ({"split.count": 3}, "one of 3 parts"),
    "window pattern": (
        {"llama.attention.sliding_window": 8, "llama.attention.sliding_window_pattern": 6},
        "sliding_window_pattern = 6",
    ),
    "control characters": ({"llama.\x1b[2J": 1}, r"'llama\.\\x1b\[2J' = 1 is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_one_line_that_names_it(
    llama: Path, tmp_path: Path, name: str
) -> None:
    metadata, message = REFUSED[name]
    with pytest.raises(ModelError, match=message) as caught:
        spec_with(llama, tmp_path, metadata=metadata)
    assert caught.value.message.isprintable()


def test_values_that_switch_a_feature_off_change_nothing(llama: Path, tmp_path: Path) -> None:
    neutral = {
        "llama.expert_count": 0,
        "llama.attn_logit_softcapping": 0.0,
        "llama.logit_scale": 1.0,
        "llama.attention.scale": 0.25,
        "llama.attention.causal": True,
        "llama.attention.head_count_kv": [2, 2],
        "llama.rope.scaling.type": "none",
        "general.file_type": 0,
        "clip.has_vision_encoder": True,
    }
    assert spec_with(llama, tmp_path, metadata=neutral) == spec_with(llama, tmp_path)


@pytest.mark.parametrize(
    "metadata",
    [
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        {"rope.scaling.factor": 4.0},
        {"rope.scale_linear": 4.0},
    ],
)
def test_linear_scaling_in_old_and_new_keys(
    llama: Path, tmp_path: Path, metadata: dict[str, Any]
) -> None:
    spec = spec_with(llama, tmp_path, metadata={f"llama.{k}": v for k, v in metadata.items()})
    assert (spec.rope.kind, spec.rope.factor) == ("linear", 4.0)
    assert spec.max_position == 2048


def test_yarn(llama: Path, tmp_path: Path) -> None:
    yarn = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 128,
        "llama.rope.scaling.yarn_beta_fast": 16.0,
        "llama.rope.scaling.yarn_beta_slow": 2.0,
    }
    spec = spec_with(llama, tmp_path, metadata=yarn)
    rope = spec.rope
    assert (rope.kind, rope.factor, rope.original_max_position) == ("yarn", 4.0, 128)
    assert (rope.beta_fast, rope.beta_slow, rope.attention_factor) == (16.0, 2.0, None)
    assert spec.max_position == 512
    factor = {"llama.rope.scaling.yarn_attn_factor": 1.0}
    assert spec_with(llama, tmp_path, metadata={**yarn, **factor}).rope.attention_factor == 1.0


def test_frequency_factors_are_part_of_the_rope_and_no_weight(llama: Path, tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    path = write_checkpoint(llama, tmp_path / "m.gguf", tensors={"rope_freqs.weight": factors})
    rope = load_gguf_spec(path).rope
    assert (rope.kind, rope.frequency_factors) == ("default", tuple(factors.tolist()))
    assert "rope_freqs.weight" not in GgufWeights(path).names()


@pytest.mark.parametrize(
    ("length", "metadata", "message"),
    [
        (5, {}, "rope_freqs.weight has 5 values instead of 8"),
        (8, {"llama.rope.scaling.factor": 2.0}, "contradicts the tensor rope_freqs.weight"),
    ],
)
def test_frequency_factors_that_contradict(
    llama: Path, tmp_path: Path, length: int, metadata: dict[str, Any], message: str
) -> None:
    factors = {"rope_freqs.weight": np.ones(length, dtype=np.float32)}
    with pytest.raises(ModelError, match=message):
        spec_with(llama, tmp_path, tensors=factors, metadata=metadata)


def test_sliding_windows_for_all_and_for_some_layers(llama: Path, tmp_path: Path) -> None:
    window = {"llama.attention.sliding_window": 8}
    assert spec_with(llama, tmp_path, metadata=window).windows == (8, 8)
    some = {**window, "llama.attention.sliding_window_pattern": [True, False]}
    assert spec_with(llama, tmp_path, metadata=some).windows == (8, 0)
    off = {"llama.attention.sliding_window": 0}
    assert spec_with(llama, tmp_path, metadata=off).windows == (0, 0)


def test_heads_may_be_rotated_in_part_where_rows_are_not_permuted(
    qwen3: Path, tmp_path: Path
) -> None:
    spec = spec_with(qwen3, tmp_path, metadata={"qwen3.rope.dimension_count": 16})
    assert (spec.rope.dim, spec.head_dim) == (16, 24)


def test_a_file_without_embeddings(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"lacks the tensor token_embd\.weight"):
        spec_with(llama, tmp_path, tensors={"token_embd.weight": None})


@pytest.mark.parametrize(
    ("name", "shown"),
    [("A model", "A model"), ("\x1b]0;x\x07 y", "]0;x y"), ("\n", "m"), (None, "m"), (7, "m")],
)
def test_the_display_name_holds_no_control_characters(
    llama: Path, tmp_path: Path, name: Any, shown: str
) -> None:
    assert spec_with(llama, tmp_path, metadata={"general.name": name}).name == shown
