"""A folder's ``config.json`` → :class:`ModelSpec`. What is not understood is refused by name."""

from __future__ import annotations

from pathlib import Path

import torch

from pagedd.errors import ModelError
from pagedd.models.endings import eos_ids
from pagedd.models.family import Family
from pagedd.models.registry import FAMILIES, find_family
from pagedd.models.rope_settings import effective_length, read_rope
from pagedd.models.settings import Settings, read_json
from pagedd.models.spec import ModelSpec

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
ACTIVATIONS = ("silu", "swish")  # two names of one function


def read_spec(folder: Path, name: str) -> ModelSpec:
    """Read config.json and its neighbours that name end tokens. Errors: ``ModelError``."""
    path = folder / "config.json"
    settings = Settings(read_json(path), str(path))
    family = _family(settings)
    _refuse_other_mathematics(settings)
    spec = _spec(settings, family, name, folder)
    settings.refuse_unread()
    return spec


def _family(settings: Settings) -> Family:
    listed = settings.get("architectures")
    if listed is not None and (not isinstance(listed, list) or not listed):
        raise settings.error("architectures", "a list with one name")
    architecture = listed[0] if listed else None
    model_type = settings.get("model_type")
    family = find_family(architecture=architecture, model_type=model_type)
    if family is None:
        known = ", ".join(family.architecture for family in FAMILIES)
        raise ModelError(
            f"{settings.where}: unsupported architecture {architecture or model_type!r}; "
            f"supported are {known}"
        )
    if model_type is not None and model_type != family.model_type:
        raise ModelError(
            f"{settings.where}: model_type {model_type!r} contradicts the architecture "
            f"{family.architecture}, which is {family.model_type!r}"
        )
    return family


def _refuse_other_mathematics(settings: Settings) -> None:
    """Settings worth a sentence of their own; all others fall to ``refuse_unread``."""
    if settings.get("hidden_act") not in (None, *ACTIVATIONS):
        raise settings.error("hidden_act", "silu")
    if quantization := settings.mapping("quantization_config"):
        method = quantization.get("quant_method", "unknown")
        raise ModelError(
            f"{settings.where}: quantization_config ({method!r}) is not supported; "
            "use the unquantised checkpoint or a GGUF file"
        )


def _spec(settings: Settings, family: Family, name: str, folder: Path) -> ModelSpec:
    heads = settings.integer("num_attention_heads")
    layers = settings.integer("num_hidden_layers")
    head_dim = _head_dim(settings, family, heads)
    max_position = settings.integer("max_position_embeddings", family.max_position)
    rope = read_rope(
        settings, head_dim=head_dim, max_position=max_position, theta=family.rope_theta
    )
    setting = family.attention_bias == "setting" and settings.flag("attention_bias", False)
    vocab_size = settings.integer("vocab_size")
    return ModelSpec(
        name=name,
        architecture=family.architecture,
        vocab_size=vocab_size,
        hidden_size=settings.integer("hidden_size"),
        intermediate_size=settings.integer("intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_kv_heads(settings, family, heads),
        head_dim=head_dim,
        rms_norm_eps=settings.number("rms_norm_eps", 1e-6),
        rope=rope,
        windows=family.windows(settings, layers),
        rope_layers=family.rope_layers(settings, layers),
        max_position=effective_length(rope),
        dtype=_dtype(settings),
        eos_ids=eos_ids(folder, settings, vocab_size),
        qkv_bias=setting or family.attention_bias == "qkv",
        o_bias=setting,
        mlp_bias=family.mlp_bias_setting and settings.flag("mlp_bias", False),
        qk_norm=family.qk_norm,
        tie_embeddings=settings.flag("tie_word_embeddings", family.tie_embeddings),
    )


def _head_dim(settings: Settings, family: Family, heads: int) -> int:
    hidden = settings.integer("hidden_size")
    if settings.get("head_dim") is not None:
        head_dim = settings.integer("head_dim")
    elif family.head_dim is not None and not settings.has("head_dim"):
        head_dim = family.head_dim
    elif hidden % heads:
        raise settings.error("hidden_size", f"a multiple of num_attention_heads ({heads})")
    else:
        head_dim = hidden // heads
    if head_dim % 2:
        raise ModelError(f"{settings.where}: head_dim is {head_dim}, but rope needs an even one")
    return head_dim


def _kv_heads(settings: Settings, family: Family, heads: int) -> int:
    # null means "as many as query heads", a missing key the family's default.
    given = settings.has("num_key_value_heads")
    default = heads if given or family.kv_heads is None else family.kv_heads
    kv_heads = settings.integer("num_key_value_heads", default)
    if heads % kv_heads:
        raise ModelError(
            f"{settings.where}: num_attention_heads ({heads}) is no multiple of "
            f"num_key_value_heads ({kv_heads})"
        )
    return kv_heads


def _dtype(settings: Settings) -> torch.dtype:
    name = settings.get("dtype") or settings.get("torch_dtype") or "float32"
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise settings.error("dtype" if settings.has("dtype") else "torch_dtype", "/".join(DTYPES))
    return dtype
