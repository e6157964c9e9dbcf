"""Writes GGUF files for tests: a tiny checkpoint as the usual converter would, or bare tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

QType = gguf.GGMLQuantizationType
PERMUTED = ("llama", "mistral", "smollm3")  # stored for rotation pairs that are neighbours
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The name of a checkpoint's tensor in a GGUF file."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{_NAMES[part]}.{kind}"
    return f"{_NAMES[stem]}.{kind}"


def permuted(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """File row 2i + j of a head is checkpoint row i + j * head_dim / 2."""
    dim = rows.shape[0] // heads
    within = (np.arange(dim // 2)[:, None] + np.array([0, dim // 2])).ravel()
    return rows[(np.arange(heads)[:, None] * dim + within).ravel()]


def checkpoint_tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """float32 tensors of a tiny checkpoint under GGUF names, rows ordered as in a GGUF file."""
    config = json.loads((folder / "config.json").read_text())
    heads = {
        "q_proj": config["num_attention_heads"],
        "k_proj": config["num_key_value_heads"],
    }
    tensors = {}
    for name, values in load_file(folder / "model.safetensors").items():
        part = name.split(".")[-2]
        if config["model_type"] in PERMUTED and part in heads:
            values = permuted(values, heads[part])
        tensors[gguf_name(name)] = values
    return tensors


def checkpoint_metadata(folder: Path) -> dict[str, Any]:
    """Metadata of a tiny checkpoint; integers and floats are written as uint32 and float32."""
    config = json.loads((folder / "config.json").read_text())
    arch = "llama" if config["model_type"] == "mistral" else config["model_type"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {}
    settings: dict[str, Any] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(rope.get("rope_theta", config.get("rope_theta", 10000.0))),
        "vocab_size": config["vocab_size"],
    }
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        settings["attention.sliding_window"] = config["sliding_window"]
    found: dict[str, Any] = {
        "general.name": folder.name,
        **{f"{arch}.{key}": value for key, value in settings.items()},
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
    }
    return {"general.architecture": arch, **found}


def write_checkpoint(
    folder: Path,
    path: Path,
    qtype: QType = QType.F32,
    *,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray[Any, Any] | None] | None = None,
) -> Path:
    """Write a tiny checkpoint as GGUF: matrices in ``qtype``, vectors in F32.

    ``metadata`` and ``tensors`` change or add entries; ``None`` takes one out.
    """
    wanted = {**checkpoint_metadata(folder), **(metadata or {})}
    values = {**checkpoint_tensors(folder), **(tensors or {})}
    stored = {
        name: (array, QType.F32 if array.ndim == 1 else qtype)
        for name, array in values.items()
        if array is not None
    }
    return write(path, {k: v for k, v in wanted.items() if v is not None}, stored)


def write(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[np.ndarray[Any, Any], QType]],
) -> Path:
    """Write a GGUF file. uint8 arrays are taken as the type's own bytes, floats are converted."""
    writer = gguf.GGUFWriter(path, str(metadata.get("general.architecture", "llama")))
    for key, value in metadata.items():
        if key != "general.architecture":  # the writer has put it already
            writer.add_key_value(key, value, *_types(value))
    for name, (array, qtype) in tensors.items():
        data = array if array.dtype == np.uint8 else gguf.quants.quantize(array, qtype)
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _types(value: Any) -> tuple[gguf.GGUFValueType, gguf.GGUFValueType | None]:
    kinds = {
        bool: gguf.GGUFValueType.BOOL,
        int: gguf.GGUFValueType.UINT32,
        float: gguf.GGUFValueType.FLOAT32,
        str: gguf.GGUFValueType.STRING,
    }
    if isinstance(value, list):
        return gguf.GGUFValueType.ARRAY, kinds[type(value[0])]
    return kinds[type(value)], None
