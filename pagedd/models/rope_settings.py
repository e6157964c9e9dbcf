"""The rope part of config.json in both layouts: ``rope_scaling`` and ``rope_parameters``.

Precedence and defaults are those of transformers 5 (``modeling_rope_utils``).
"""

from __future__ import annotations

from dataclasses import replace

from pagedd.errors import ModelError
from pagedd.models.settings import Settings
from pagedd.models.spec import RopeSpec

# Kinds that know the length of the pre-training apart from the present one.
_WITH_ORIGINAL = ("yarn", "longrope", "llama3")


def read_rope(settings: Settings, *, head_dim: int, max_position: int, theta: float) -> RopeSpec:
    """The rope of a config; ``theta`` is the family's default. Errors: ``ModelError``."""
    theta = settings.number("rope_theta", theta)
    partial = settings.number("partial_rotary_factor", 1.0)
    top_original = settings.get("original_max_position_embeddings")
    if top_original is not None:
        settings.integer("original_max_position_embeddings")
    rope = _rope_dict(settings)
    kind = _kind(rope)
    theta = rope.number("rope_theta", theta)
    partial = rope.number("partial_rotary_factor", partial)
    if partial > 1 or (partial != 1 and kind != "proportional"):
        raise ModelError(
            f"{settings.where}: partial_rotary_factor {partial} is not supported with {kind} rope"
        )
    original = rope.integer("original_max_position_embeddings", max_position)
    if kind in _WITH_ORIGINAL and top_original is not None:
        original = top_original
    base = RopeSpec(
        kind="default",
        theta=theta,
        dim=head_dim,
        max_position=max_position,
        original_max_position=original if kind in _WITH_ORIGINAL else max_position,
        proportion=partial,
    )
    spec = _with_kind(rope, kind, base)
    rope.refuse_unread()
    return spec


def effective_length(rope: RopeSpec) -> int:
    """Longest sequence that the scaled rope is made for.

    linear, dynamic: the stated length times the factor; yarn: the original length times the factor.
    llama3 and longrope checkpoints state the extended length themselves; where they state the
    original one instead, the factor applies.
    """
    factor = rope.factor or 1.0
    if rope.kind in ("linear", "dynamic"):
        return int(rope.max_position * factor)
    if rope.kind == "yarn":
        return int(rope.original_max_position * factor)
    if rope.kind in ("llama3", "longrope") and rope.max_position <= rope.original_max_position:
        return int(rope.original_max_position * factor)
    return rope.max_position


def _rope_dict(settings: Settings) -> Settings:
    old, new = settings.mapping("rope_scaling"), settings.mapping("rope_parameters")
    if old and new and old != new:
        raise ModelError(
            f"{settings.where}: rope_scaling and rope_parameters contradict each other"
        )
    name = "rope_scaling" if old else "rope_parameters"
    return Settings(old or new or {}, f"{settings.where}: {name}")


def _kind(rope: Settings) -> str:
    new, old = rope.get("rope_type"), rope.get("type")
    if new is not None and old is not None and new != old:
        raise ModelError(f"{rope.where}: type {old!r} and rope_type {new!r} contradict each other")
    kind = new or old or "default"
    if not isinstance(kind, str):
        raise rope.error("rope_type", "a name")
    return kind


def _with_kind(rope: Settings, kind: str, base: RopeSpec) -> RopeSpec:
    """``base`` with the parameters of its kind."""
    match kind:
        case "default":
            return base
        case "linear":
            return replace(base, kind="linear", factor=rope.number("factor"))
        case "dynamic":
            if base.dim <= 2:
                raise ModelError(f"{rope.where}: dynamic rope needs more than 2 rotated dimensions")
            return replace(base, kind="dynamic", factor=rope.number("factor"))
        case "proportional":
            return replace(base, kind="proportional", factor=rope.number("factor", 1.0))
        case "llama3":
            return _llama3(rope, base)
        case "yarn":
            return _yarn(rope, base)
        case "longrope":
            return _longrope(rope, base)
    raise ModelError(f"{rope.where}: unknown rope_type {kind!r}")


def _llama3(rope: Settings, base: RopeSpec) -> RopeSpec:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        raise rope.error("high_freq_factor", f"more than low_freq_factor ({low})")
    return replace(
        base,
        kind="llama3",
        factor=rope.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(rope: Settings, base: RopeSpec) -> RopeSpec:
    return replace(
        base,
        kind="yarn",
        factor=_factor(rope, base),
        attention_factor=rope.optional_number("attention_factor"),
        beta_fast=rope.optional_number("beta_fast") or 32.0,
        beta_slow=rope.optional_number("beta_slow") or 1.0,
        mscale=rope.optional_number("mscale"),
        mscale_all_dim=rope.optional_number("mscale_all_dim"),
        truncate=rope.flag("truncate", True),
    )


def _longrope(rope: Settings, base: RopeSpec) -> RopeSpec:
    return replace(
        base,
        kind="longrope",
        factor=_factor(rope, base),
        attention_factor=rope.optional_number("attention_factor"),
        short_factor=rope.numbers("short_factor", base.dim // 2),
        long_factor=rope.numbers("long_factor", base.dim // 2),
    )


def _factor(rope: Settings, base: RopeSpec) -> float:
    """The factor, or where it is left out the ratio of the two lengths."""
    return rope.number("factor", base.max_position / base.original_max_position)
