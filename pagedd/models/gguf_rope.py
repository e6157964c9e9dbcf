"""The rotary embedding that a GGUF head describes."""

from __future__ import annotations

from pagedd.errors import ModelError
from pagedd.models.gguf_keys import Keys
from pagedd.models.gguf_meta import Value
from pagedd.models.spec import RopeKind, RopeSpec


def rope_spec(
    keys: Keys, *, permuted: bool, head_dim: int, frequency_factors: tuple[float, ...]
) -> RopeSpec:
    """The rope of a model whose heads have ``head_dim`` values.

    ``permuted``: rows of q and k are stored in neighbouring pairs; the order of a partly rotated
    head is then unknown. ``frequency_factors`` as in ``RopeSpec``. Errors: ``ModelError``.
    """
    dim = keys.positive("rope.dimension_count", head_dim)
    if dim > head_dim or dim % 2:
        raise keys.wrong("rope.dimension_count", f"must be even and at most {head_dim}")
    if permuted and dim != head_dim:
        raise keys.wrong("rope.dimension_count", f"rotates less than the head ({head_dim})")
    factor = keys.number("rope.scaling.factor", 0.0) or keys.number("rope.scale_linear", 0.0)
    # A factor without a type means linear scaling, as files from before the key have it.
    named = keys.get("rope.scaling.type")
    kind = _rope_kind(keys, ("linear" if factor else "none") if named is None else named)
    if kind != "default" and factor <= 0:
        raise keys.wrong("rope.scaling.factor", "must be positive with this rope.scaling.type")
    if frequency_factors and kind != "default":
        raise keys.wrong("rope.scaling.type", "contradicts the tensor rope_freqs.weight")
    if frequency_factors and len(frequency_factors) != dim // 2:
        raise ModelError(
            f"{keys.header.path}: rope_freqs.weight has {len(frequency_factors)} values "
            f"instead of {dim // 2}"
        )
    if keys.number("rope.scaling.attn_factor", 1.0) != 1.0:
        raise keys.wrong("rope.scaling.attn_factor", "is not supported")
    context = keys.positive("context_length")
    # Converters copy the checkpoint's attention_factor here: the whole multiplier of cos and sin.
    attention_factor = keys.number("rope.scaling.yarn_attn_factor", 0.0)
    return RopeSpec(
        kind=kind,
        theta=keys.number("rope.freq_base", 10000.0),
        dim=dim,
        max_position=context,
        original_max_position=keys.positive("rope.scaling.original_context_length", context),
        factor=None if kind == "default" else factor,
        attention_factor=attention_factor if kind == "yarn" and attention_factor else None,
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        frequency_factors=frequency_factors,
    )


def _rope_kind(keys: Keys, name: Value) -> RopeKind:
    match name:
        case "none":
            return "default"
        case "linear":
            return "linear"
        case "yarn":
            return "yarn"
        case _:
            raise keys.wrong("rope.scaling.type", "is not supported (none, linear and yarn are)")
