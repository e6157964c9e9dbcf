"""config.json: defaults of the reference, refusal by name, end tokens from all sources (B51)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from pagedd.errors import ModelError
from pagedd.models.config import read_spec
from tests.tiny.models import COMMON, KINDS, build, edit_config
from tests.tiny.tokenizer import EOS, IM_END, PAD, save_tokenizer

NAMES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}


def _write(folder: Path, **values: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_those_of_the_reference(kind: str, tmp_path: Path) -> None:
    required = {
        "vocab_size": 300,
        "hidden_size": 128,
        "intermediate_size": 96,
        "num_hidden_layers": 8,
        "num_attention_heads": 32,
    }
    _write(tmp_path, model_type=kind, architectures=[NAMES[kind]], **required)
    spec, expected = read_spec(tmp_path, "x"), AutoConfig.from_pretrained(tmp_path)
    assert spec.num_kv_heads == expected.num_key_value_heads
    assert spec.head_dim == (getattr(expected, "head_dim", None) or 128 // 32)
    assert spec.max_position == expected.max_position_embeddings
    assert spec.rms_norm_eps == expected.rms_norm_eps
    assert spec.tie_embeddings == expected.tie_word_embeddings
    assert spec.rope.theta == expected.rope_parameters["rope_theta"]
    assert spec.qkv_bias == (kind == "qwen2")
    assert not spec.o_bias
    assert not spec.mlp_bias
    assert spec.qk_norm == (kind == "qwen3")
    assert spec.dtype == torch.float32
    if kind == "smollm3":
        assert spec.rope_layers == tuple(map(bool, expected.no_rope_layers))
    else:
        assert all(spec.rope_layers)


def test_model_type_is_enough(tmp_path: Path) -> None:
    folder = edit_config(build("qwen2", tmp_path), drop=["architectures"])
    assert read_spec(folder, "x").architecture == "Qwen2ForCausalLM"


def test_an_architecture_of_another_model_type(tmp_path: Path) -> None:
    """Both name the model's code: to believe one of them is to answer with wrong weights."""
    edit_config(build("llama", tmp_path), model_type="mamba")
    with pytest.raises(ModelError, match=r"model_type 'mamba' contradicts .* LlamaForCausalLM"):
        read_spec(tmp_path, "x")


def test_what_tools_leave_behind_is_harmless(tmp_path: Path) -> None:
    left = {
        "_name_or_path": "somewhere",
        "is_llama_config": True,
        "rope_interleaved": False,
        "quantization_config": None,
        "transformers.js_config": {"dtype": "q4"},
        "unsloth_version": "1",
        "temperature": 0.7,
        "id2label": {"0": "a"},
        "attention_dropout": 0.1,
        "use_mrope": False,
        "pretraining_tp": 2,
    }
    before = read_spec(build("llama", tmp_path), "x")
    assert read_spec(edit_config(tmp_path, **left), "x") == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
        ({"architectures": []}, "architectures"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"attention_multiplier": 1.0}, "attention_multiplier"),
        ({"residual_multiplier": 0.22}, "residual_multiplier"),
        ({"logits_scaling": 8.0}, "logits_scaling"),
        ({"use_mrope": True}, "use_mrope"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"num_experts": 8}, "num_experts"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"vocab_size": 3.5}, "vocab_size is 3.5"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"rms_norm_eps": -1e-6}, "rms_norm_eps"),
        ({"attention_bias": "yes"}, "attention_bias is 'yes'"),
        ({"dtype": "float8_e4m3fn"}, "dtype is 'float8_e4m3fn'"),
        ({"eos_token_id": "two"}, "eos_token_id is 'two'"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    folder = edit_config(build("llama", tmp_path), **changes)
    with pytest.raises(ModelError) as caught:
        read_spec(folder, "x")
    assert named in caught.value.message
    assert str(folder) in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("smollm3", {"no_rope_layers": [1]}),
        ("smollm3", {"no_rope_layers": [1, 2]}),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}),
        ("mistral", {"attention_bias": True}),
        ("qwen2", {"mlp_bias": True}),
        ("llama", {"no_rope_layers": [1, 0]}),
    ],
)
def test_settings_of_other_families_are_refused(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    folder = edit_config(build(kind, tmp_path), **changes)
    with pytest.raises(ModelError, match=list(changes)[-1]):
        read_spec(folder, "x")


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 100_000, '{"a": "\udcff"}'])
def test_a_damaged_config_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ModelError) as caught:
        read_spec(tmp_path, "x")
    assert "config.json" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (IM_END, {EOS, IM_END}),
        ([IM_END, PAD], {EOS, IM_END, PAD}),
        ([IM_END, COMMON["vocab_size"], -1], {EOS, IM_END}),
        (None, {EOS}),
        ("missing", {EOS}),
    ],
)
def test_end_tokens_of_the_generation_config(
    generation: Any, expected: set[int], tmp_path: Path
) -> None:
    folder = build("llama", tmp_path)
    path = folder / "generation_config.json"
    if generation == "missing":
        path.unlink()
    else:
        path.write_text(json.dumps({"eos_token_id": generation}))
    assert read_spec(folder, "x").eos_ids == expected


def test_end_token_of_the_tokenizer(tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    save_tokenizer(folder, eos="<|im_end|>")
    assert read_spec(folder, "x").eos_ids == {EOS, IM_END}
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["eos_token"] = {"content": "<|pad|>"}
    config["added_tokens_decoder"] = {str(PAD): {"content": "<|pad|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").unlink()
    assert read_spec(folder, "x").eos_ids == {EOS, PAD}


def test_no_end_token_at_all(tmp_path: Path) -> None:
    folder = edit_config(build("llama", tmp_path), eos_token_id=None)
    (folder / "generation_config.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert read_spec(folder, "x").eos_ids == frozenset()
