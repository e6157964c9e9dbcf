"""From GGUF metadata to a :class:`ModelSpec`.

Every ``ARCHITECTURE.*`` key is honoured, or holds a value that changes nothing, or is refused by
name: a setting that is silently dropped gives a model that answers almost right.
Source: the GGUF specification's key names, and the conversion from Hugging Face checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from pagedd.errors import ModelError
from pagedd.models.gguf_keys import Keys, refuse_unknown
from pagedd.models.gguf_meta import Header, shown
from pagedd.models.gguf_rope import rope_spec
from pagedd.models.rope_settings import effective_length
from pagedd.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the name in ``general.architecture`` implies without saying it."""

    hf_name: str
    # Rows of q and k are stored so that rotation pairs are neighbours (2i, 2i+1).
    permuted: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    no_rope_every: int = 0  # each n-th layer is not rotated


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", permuted=True),
    "qwen2": Architecture("Qwen2ForCausalLM", permuted=False, qkv_bias=True),
    "qwen3": Architecture("Qwen3ForCausalLM", permuted=False, qk_norm=True),
    "smollm3": Architecture("SmolLM3ForCausalLM", permuted=True, no_rope_every=4),
}

_END_TOKENS = ("eos_token_id", "eot_token_id", "eom_token_id")
_F32, _F16 = 0, 1  # tensor type numbers


def architecture_of(header: Header) -> Architecture:
    """The architecture, if it is one of ours. Errors: ``ModelError`` naming it."""
    name = header.metadata.get("general.architecture")
    known = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if known is None:
        raise ModelError(
            f"{header.path} is of the architecture {shown(str(name))}, which is not supported "
            f"(supported: {', '.join(sorted(ARCHITECTURES))})"
        )
    return known


def spec_from_header(header: Header, frequency_factors: tuple[float, ...]) -> ModelSpec:
    """The model that a GGUF head describes.

    ``frequency_factors``: content of the tensor rope_freqs.weight, empty if there is none.
    Errors: ``ModelError``, one line that names the key.
    """
    architecture = architecture_of(header)
    keys = Keys(header)
    refuse_unknown(keys)
    layers, hidden = keys.positive("block_count"), keys.positive("embedding_length")
    heads = keys.positive("attention.head_count")
    kv_heads = keys.positive("attention.head_count_kv", heads)
    head_dim = keys.positive("attention.key_length", hidden // heads if hidden % heads == 0 else 0)
    if heads % kv_heads:
        raise keys.wrong("attention.head_count_kv", f"does not divide {heads} heads")
    if keys.positive("attention.value_length", head_dim) != head_dim:
        raise keys.wrong("attention.value_length", f"differs from the key length {head_dim}")
    scale = keys.number("attention.scale", 0.0)
    if scale and not math.isclose(scale, head_dim**-0.5, rel_tol=1e-4):
        raise keys.wrong("attention.scale", "is not head_dim ** -0.5, which is not supported")
    rope = rope_spec(
        keys,
        permuted=architecture.permuted,
        head_dim=head_dim,
        frequency_factors=frequency_factors,
    )
    step = architecture.no_rope_every
    vocab_size = _vocab_size(keys, hidden)
    return ModelSpec(
        name=_display_name(header),
        architecture=architecture.hf_name,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=keys.positive("feed_forward_length"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        rope=rope,
        windows=_windows(keys, layers),
        rope_layers=tuple(not step or (layer + 1) % step != 0 for layer in range(layers)),
        max_position=effective_length(rope),
        dtype=_dtype(header),
        eos_ids=_eos_ids(header, vocab_size),
        qkv_bias=architecture.qkv_bias or _has(header, "attn_q", "attn_k", "attn_v"),
        o_bias=_has(header, "attn_output"),
        mlp_bias=_has(header, "ffn_gate", "ffn_up", "ffn_down"),
        qk_norm=architecture.qk_norm,
        tie_embeddings="output.weight" not in header.tensors,
    )


def _windows(keys: Keys, layers: int) -> tuple[int, ...]:
    """Keys that a query sees, itself included, per layer; 0 = all."""
    window = keys.get("attention.sliding_window")
    pattern = keys.get("attention.sliding_window_pattern")
    if window is None or window == 0:
        return (0,) * layers
    size = keys.positive("attention.sliding_window")
    if pattern is None:
        return (size,) * layers
    if not isinstance(pattern, list) or len(pattern) != layers:
        raise keys.wrong("attention.sliding_window_pattern", "is not a list, one per layer")
    return tuple(size if windowed else 0 for windowed in pattern)


def _vocab_size(keys: Keys, hidden: int) -> int:
    """Rows of the embedding; what the metadata says of it must agree."""
    header = keys.header
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{header.path} lacks the tensor token_embd.weight")
    if len(embedding.shape) != 2 or embedding.shape[1] != hidden:
        raise ModelError(
            f"{header.path}: tensor token_embd.weight has the shape {list(embedding.shape)}, "
            f"which contradicts {keys.prefix}embedding_length = {hidden}"
        )
    rows = embedding.shape[0]
    if keys.positive("vocab_size", rows) != rows:
        raise keys.wrong("vocab_size", f"contradicts the {rows} rows of token_embd.weight")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > rows:
        raise ModelError(
            f"{header.path}: {len(tokens)} tokens contradict the {rows} rows of token_embd.weight"
        )
    return rows


def _eos_ids(header: Header, vocab_size: int) -> frozenset[int]:
    """Every id that ends a turn; ids outside the vocabulary can never be sampled."""
    found = (header.metadata.get(f"tokenizer.ggml.{key}") for key in _END_TOKENS)
    return frozenset(i for i in found if type(i) is int and 0 <= i < vocab_size)


def _has(header: Header, *parts: str) -> bool:
    return any(
        name.startswith("blk.") and name.split(".")[2:] in ([part, "bias"] for part in parts)
        for name in header.tensors
    )


def _dtype(header: Header) -> torch.dtype:
    """What the matrices are kept in; bfloat16 for quantised ones."""
    types = {t.type_id for t in header.tensors.values() if len(t.shape) > 1}
    if types == {_F32}:
        return torch.float32
    return torch.float16 if types <= {_F32, _F16} else torch.bfloat16


def _display_name(header: Header) -> str:
    name = header.metadata.get("general.name")
    printable = isinstance(name, str) and "".join(c for c in name if c.isprintable()).strip()[:80]
    return printable or header.path.stem
