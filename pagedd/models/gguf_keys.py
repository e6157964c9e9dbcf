"""Typed access to the ``ARCHITECTURE.*`` keys of a GGUF head, and which of them are understood."""

from __future__ import annotations

import math

from pagedd.errors import ModelError
from pagedd.models.gguf_meta import Header, Value, shown

_HONOURED = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.scale",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.finetuned",  # says whether the scaling was trained; changes nothing
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
        "vocab_size",
    }
)
# Keys of other models, with the values that mean "not used".
_NEUTRAL: dict[str, tuple[Value, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.temperature_scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "final_logit_softcapping": (0.0,),
    "leading_dense_block_count": (0,),
    "logit_scale": (0.0, 1.0),
    "nextn_predict_layers": (0,),
    "pooling_type": (0,),
    "residual_scale": (0.0, 1.0),
    "rope.scaling.alpha": (0.0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "tensor_data_layout": ("Meta AI original pth",),
    "use_parallel_residual": (False,),
}


class Keys:
    """The ``ARCHITECTURE.*`` keys of one file; errors are ``ModelError`` and name the key."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.prefix = f"{header.metadata['general.architecture']}."

    def get(self, key: str) -> Value | None:
        """The value as it is, ``None`` if the file does not give it."""
        return self.header.metadata.get(self.prefix + key)

    def wrong(self, key: str, why: str) -> ModelError:
        """The error that says which key, its value, and ``why`` it cannot be."""
        value = shown(str(self.get(key)))
        return ModelError(f"{self.header.path}: {shown(self.prefix + key)} = {value} {why}")

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; without a ``default`` the key must be there."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise ModelError(f"{self.header.path} lacks the metadata key {self.prefix}{key}")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "is not a number")
        if not math.isfinite(value):
            raise self.wrong(key, "is not finite")
        return value

    def positive(self, key: str, default: int | None = None) -> int:
        """A count ≥ 1; some files give one per layer, which must then be equal."""
        value = self.get(key)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise ModelError(
                    f"{self.header.path}: {self.prefix}{key} differs between layers, "
                    f"which is not supported"
                )
            value = value[0]
        elif value is None:
            value = self.number(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(key, "is not a positive integer")
        return value


def refuse_unknown(keys: Keys) -> None:
    """Refuse a setting that nothing here honours, and files that are no whole model.

    Errors: ``ModelError`` naming the key.
    """
    metadata, path = keys.header.metadata, keys.header.path
    for full in metadata:
        key = full.removeprefix(keys.prefix)
        if key == full or key in _HONOURED:
            continue
        if keys.get(key) not in _NEUTRAL.get(key, ()):
            raise keys.wrong(key, "is not supported")
    if metadata.get("general.type", "model") != "model":
        kind = shown(str(metadata["general.type"]))
        raise ModelError(f"{path} holds a GGUF {kind} and not a model")
    if metadata.get("split.count", 0) not in (0, 1):
        raise ModelError(
            f"{path} is one of {metadata['split.count']} parts (split.count): "
            f"merge them into one file first"
        )
    if metadata.get("general.quantization_version", 2) != 2:
        version = metadata["general.quantization_version"]
        raise ModelError(f"{path}: general.quantization_version {version} is not supported")
