"""The same weights as safetensors and as GGUF are the same model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pagedd.errors import ModelError, ModelNotFound
from pagedd.models.config import read_spec
from pagedd.models.gguf import GgufWeights, load_gguf_spec, unpermute
from pagedd.models.spec import tensor_shapes
from tests.models.gguf_writer import QType, checkpoint_tensors, permuted, write_checkpoint
from tests.tiny.models import build

GQA = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-gqa-8-2": ("llama", GQA),
    "llama-bias": ("llama", {**GQA, "attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-wide-heads": ("llama", {"head_dim": 24}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 4}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("checkpoints")
    return {name: build(kind, base / name, **changes) for name, (kind, changes) in MODELS.items()}


@pytest.fixture(scope="module")
def llama(folders: dict[str, Path]) -> Path:
    return folders["llama"]


@pytest.mark.parametrize("name", MODELS)
def test_f32_gives_the_checkpoints_tensors_exactly(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    path = write_checkpoint(folders[name], tmp_path / "m.gguf")
    weights, expected = GgufWeights(path), load_file(folders[name] / "model.safetensors")
    assert weights.names() == set(expected) == set(tensor_shapes(load_gguf_spec(path)))
    for tensor, values in expected.items():
        assert weights.shape(tensor) == values.shape
        assert torch.equal(weights.get(tensor), values), tensor


@pytest.mark.parametrize("name", MODELS)
def test_the_spec_is_that_of_the_checkpoint(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    expected = read_spec(folders[name], name)
    found = load_gguf_spec(write_checkpoint(folders[name], tmp_path / "m.gguf"))
    assert found.rms_norm_eps == pytest.approx(expected.rms_norm_eps, rel=1e-6)  # stored as float32
    # A GGUF file does not tell Mistral from Llama; what differs is the window.
    same = replace(
        expected, rms_norm_eps=found.rms_norm_eps, name=name, architecture=found.architecture
    )
    assert found == same


def test_the_row_order_matters_and_is_undone_per_head() -> None:
    rows = np.arange(16 * 3, dtype=np.float32).reshape(16, 3)
    stored = permuted(rows, 2)
    assert stored[:4, 0].tolist() == [0.0, 12.0, 3.0, 15.0]  # rows 0, 4, 1, 5
    assert torch.equal(unpermute(torch.from_numpy(stored), 2), torch.from_numpy(rows))
    assert not torch.equal(unpermute(torch.from_numpy(stored), 4), torch.from_numpy(rows))


# Largest error of a value, as a share of the largest value of its block of 32.
BOUNDS = {
    QType.F16: 2**-11,
    QType.BF16: 2**-8,
    QType.Q8_0: 1 / 127,
    QType.Q4_0: 1 / 7,
    QType.Q4_1: 1 / 7,
}


@pytest.mark.parametrize("qtype", BOUNDS, ids=lambda q: q.name)
@pytest.mark.parametrize("name", ["llama-gqa-8-2", "qwen2"])
def test_narrow_types_stay_within_the_bounds_of_the_type(
    folders: dict[str, Path], tmp_path: Path, name: str, qtype: QType
) -> None:
    weights = GgufWeights(write_checkpoint(folders[name], tmp_path / "m.gguf", qtype))
    for tensor, values in load_file(folders[name] / "model.safetensors").items():
        found = weights.get(tensor).float()
        if values.ndim == 1:
            assert torch.equal(found, values), tensor
            continue
        blocks = values.reshape(-1, 32)
        largest = blocks.abs().amax(1, keepdim=True)
        error = (found.reshape(-1, 32) - blocks).abs()
        assert (error <= BOUNDS[qtype] * largest).all(), tensor
        assert not torch.equal(found, values), tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "qtype", [QType.F32, QType.F16, QType.BF16, QType.Q8_0], ids=lambda q: q.name
)
def test_weights_come_in_the_dtype_asked_for(
    llama: Path, tmp_path: Path, qtype: QType, dtype: torch.dtype
) -> None:
    path = write_checkpoint(llama, tmp_path / "m.gguf", qtype)
    own, asked = GgufWeights(path), GgufWeights(path, dtype)
    for tensor in own.names():
        assert torch.equal(asked.get(tensor), own.get(tensor).to(dtype))


@pytest.mark.parametrize(
    ("qtype", "dtype"),
    [
        (QType.F32, torch.float32),
        (QType.F16, torch.float16),
        (QType.BF16, torch.bfloat16),
        (QType.Q4_0, torch.bfloat16),
    ],
)
def test_the_checkpoints_dtype(
    llama: Path, tmp_path: Path, qtype: QType, dtype: torch.dtype
) -> None:
    assert load_gguf_spec(write_checkpoint(llama, tmp_path / "m.gguf", qtype)).dtype == dtype


def test_weights_do_not_depend_on_the_file_once_read(llama: Path, tmp_path: Path) -> None:
    path = write_checkpoint(llama, tmp_path / "m.gguf")
    name = "model.norm.weight"
    values = GgufWeights(path).get(name)
    before = values.clone()
    values.add_(1.0)
    assert torch.equal(GgufWeights(path).get(name), before)


def test_every_end_token_counts_and_ids_outside_the_vocabulary_do_not(
    llama: Path, tmp_path: Path
) -> None:
    ends = {
        "tokenizer.ggml.eos_token_id": 297,
        "tokenizer.ggml.eot_token_id": 299,
        "tokenizer.ggml.eom_token_id": 300,
    }
    spec = load_gguf_spec(write_checkpoint(llama, tmp_path / "m.gguf", metadata=ends))
    assert spec.eos_ids == {297, 299}


def test_a_missing_tensor_is_named_as_in_the_file(llama: Path, tmp_path: Path) -> None:
    gone = {"blk.1.ffn_up.weight": None, "output_norm.weight": None}
    weights = GgufWeights(write_checkpoint(llama, tmp_path / "m.gguf", tensors=gone))
    with pytest.raises(ModelError, match=r"m\.gguf lacks the tensor blk\.1\.ffn_up\.weight$"):
        weights.get("model.layers.1.mlp.up_proj.weight")
    with pytest.raises(ModelError, match=r"lacks the tensor output_norm\.weight$"):
        weights.shape("model.norm.weight")


def test_an_unknown_tensor_goes_by_its_own_name(llama: Path, tmp_path: Path) -> None:
    extra = {"blk.0.attn_sinks.weight": np.ones(4, dtype=np.float32)}
    weights = GgufWeights(write_checkpoint(llama, tmp_path / "m.gguf", tensors=extra))
    assert "blk.0.attn_sinks.weight" in weights.names()


def test_an_unsupported_tensor_type_is_refused_by_name(tmp_path: Path) -> None:
    folder = build("llama", tmp_path, hidden_size=256, intermediate_size=256)
    path = write_checkpoint(folder, tmp_path / "m.gguf", QType.TQ2_0)
    with pytest.raises(ModelError, match=r"tensor \S+ has the type TQ2_0, .*supported: F32, F16"):
        GgufWeights(path)


def test_a_head_count_that_contradicts_a_tensor(llama: Path, tmp_path: Path) -> None:
    rows = np.zeros((30, 64), dtype=np.float32)
    path = write_checkpoint(llama, tmp_path / "m.gguf", tensors={"blk.0.attn_q.weight": rows})
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.weight has 30 rows.* 4 heads"):
        GgufWeights(path).get("model.layers.0.self_attn.q_proj.weight")


def test_a_file_cut_short_is_refused_wherever_it_is_cut(llama: Path, tmp_path: Path) -> None:
    whole = write_checkpoint(llama, tmp_path / "whole.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (*range(1, 3000, 97), *range(3000, len(whole) - 4, len(whole) // 9)):
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"truncated|not a GGUF file") as caught:
            GgufWeights(cut)
        assert "\n" not in caught.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no such file"):
        load_gguf_spec(tmp_path / "none.gguf")


def test_long_tensors_are_dequantised_in_chunks_without_a_seam(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(40000, 64)).astype(np.float32)
    folder = build("llama", tmp_path / "wide", vocab_size=40000, tie_word_embeddings=True)
    tensors = {"token_embd.weight": values}
    path = write_checkpoint(folder, tmp_path / "m.gguf", QType.Q8_0, tensors=tensors)
    expected = gguf.quants.dequantize(gguf.quants.quantize(values, QType.Q8_0), QType.Q8_0)
    assert torch.equal(
        GgufWeights(path).get("model.embed_tokens.weight"), torch.from_numpy(expected)
    )
    assert "token_embd.weight" in checkpoint_tensors(folder)
