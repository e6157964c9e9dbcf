"""Safetensors: tying, shards, and an error with a name for whatever is wrong (B46)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagedd.errors import ModelError
from tests.models.paged import difference, load, tokens_of
from tests.tiny.models import build, edit_config, random_model, save

FILE = "model.safetensors"
LAYER_TENSOR = "model.layers.1.mlp.up_proj.weight"


def _rewrite(folder: Path, *, drop: tuple[str, ...] = (), **added: Tensor) -> Path:
    """Change the checkpoint's tensors; names are given with ``__`` for the dots."""
    tensors = load_file(folder / FILE)
    tensors.update({name.replace("__", "."): tensor for name, tensor in added.items()})
    for name in drop:
        del tensors[name]
    save_file(tensors, folder / FILE, {"format": "pt"})
    return folder


def _shard(folder: Path) -> Path:
    """Split the checkpoint into three files with an index."""
    tensors = load_file(folder / FILE)
    names = sorted(tensors)
    where = {name: f"model-{i % 3 + 1:05}-of-00003.safetensors" for i, name in enumerate(names)}
    for file in set(where.values()):
        part = {name: tensors[name] for name in names if where[name] == file}
        save_file(part, folder / file, {"format": "pt"})
    (folder / FILE).unlink()
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (folder / f"{FILE}.index.json").write_text(json.dumps(index))
    return folder


def _logits_agree(folder: Path) -> bool:
    return difference(folder, tokens_of(1, 24), prompt_len=16, chunk=5) < 1e-4


def test_tied_and_output_absent(tmp_path: Path) -> None:
    folder = build("llama", tmp_path, tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(folder / FILE)
    assert load(folder).spec.tie_embeddings
    assert _logits_agree(folder)


def test_tied_and_output_present(tmp_path: Path) -> None:
    folder = build("llama", tmp_path, tie_word_embeddings=True)
    embedding = load_file(folder / FILE)["model.embed_tokens.weight"]
    _rewrite(folder, lm_head__weight=embedding.clone())
    assert load(folder).spec.tie_embeddings
    assert _logits_agree(folder)


def test_said_to_be_tied_but_a_different_output_present(tmp_path: Path) -> None:
    """The reference then believes the checkpoint and not the flag."""
    folder = edit_config(build("llama", tmp_path), tie_word_embeddings=True)
    assert not load(folder).spec.tie_embeddings
    assert _logits_agree(folder)


def test_untied_and_present(tmp_path: Path) -> None:
    folder = build("smollm3", tmp_path, tie_word_embeddings=False)
    assert not load(folder).spec.tie_embeddings
    assert _logits_agree(folder)


def test_shards(tmp_path: Path) -> None:
    assert _logits_agree(_shard(build("qwen2", tmp_path)))


def test_stored_rope_frequencies_are_harmless(tmp_path: Path) -> None:
    frequencies = torch.ones(8)
    folder = build("llama", tmp_path)
    _rewrite(folder, model__layers__0__self_attn__rotary_emb__inv_freq=frequencies)
    assert _logits_agree(folder)


def test_half_precision_files_are_read(tmp_path: Path) -> None:
    model = random_model("llama")
    for dtype in (torch.float16, torch.bfloat16):
        folder = save(model.to(dtype), tmp_path / str(dtype))
        assert load(folder, dtype="auto").spec.dtype == torch.bfloat16
        assert _logits_agree(folder)


def _fails(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(folder)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    "name", ["lm_head.weight", LAYER_TENSOR, "model.embed_tokens.weight", "model.norm.weight"]
)
def test_a_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    assert name in _fails(_rewrite(build("llama", tmp_path), drop=(name,)))


@pytest.mark.parametrize(
    "name",
    ["model__layers__0__self_attn__q_norm__weight", "model__layers__2__mlp__up_proj__weight"],
)
def test_an_unknown_tensor_is_named(name: str, tmp_path: Path) -> None:
    folder = _rewrite(build("llama", tmp_path), **{name: torch.ones(4)})
    assert name.replace("__", ".") in _fails(folder)


def test_another_shape_is_named(tmp_path: Path) -> None:
    folder = edit_config(build("llama", tmp_path), intermediate_size=100)
    message = _fails(folder)
    assert "mlp.gate_proj.weight" in message
    assert "[96, 64]" in message
    assert "[100, 64]" in message


def test_missing_biases_are_named(tmp_path: Path) -> None:
    folder = edit_config(build("llama", tmp_path), attention_bias=True)
    assert "self_attn.q_proj.bias" in _fails(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = _shard(build("llama", tmp_path))
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors" in _fails(folder)


def test_a_tensor_missing_from_its_shard_is_named(tmp_path: Path) -> None:
    folder = _shard(build("llama", tmp_path))
    path = folder / f"{FILE}.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][LAYER_TENSOR] = "model-00001-of-00003.safetensors"
    index["weight_map"]["model.norm.weight"] = "model-00001-of-00003.safetensors"
    path.write_text(json.dumps(index))
    assert "of the index is missing" in _fails(folder)


@pytest.mark.parametrize("file", ["../model.safetensors", "/model.safetensors"])
def test_an_index_stays_in_its_folder(file: str, tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    (folder / f"{FILE}.index.json").write_text(json.dumps({"weight_map": {LAYER_TENSOR: file}}))
    assert "model.safetensors" in _fails(folder)


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\xff" * 64])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    (folder / FILE).write_bytes(content)
    assert FILE in _fails(folder)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[:-1000])
    assert FILE in _fails(folder)


def test_an_integer_tensor_is_refused(tmp_path: Path) -> None:
    packed = torch.ones(96, 64, dtype=torch.int8)
    folder = build("llama", tmp_path)
    _rewrite(folder, model__layers__1__mlp__up_proj__weight=packed)
    message = _fails(folder)
    assert LAYER_TENSOR in message
    assert "I8" in message
