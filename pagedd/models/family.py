"""An architecture family as data: what its configs mean beyond the shared settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pagedd.errors import ModelError
from pagedd.models.settings import Settings

FULL, SLIDING = "full_attention", "sliding_attention"


def all_full(settings: Settings, layers: int) -> tuple[int, ...]:
    """No sliding window in any layer."""
    types = layer_types(settings, layers)
    if types is not None and SLIDING in types:
        raise settings.error("layer_types", f"only {FULL} for this architecture")
    return (0,) * layers


def all_rotated(settings: Settings, layers: int) -> tuple[bool, ...]:
    """Rope in every layer."""
    return (True,) * layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Defaults are those of the reference for keys that a config leaves out."""

    architecture: str
    model_type: str
    max_position: int
    kv_heads: int | None = None  # None: as many as query heads
    head_dim: int | None = None  # None: hidden_size / heads
    rope_theta: float = 10_000.0
    tie_embeddings: bool = False
    attention_bias: Literal["none", "qkv", "setting"] = "none"  # setting: on q, k, v and o
    mlp_bias_setting: bool = False
    qk_norm: bool = False
    # (settings, layers) → one window a layer, 0 = all keys; → whether each layer has rope
    windows: Callable[[Settings, int], tuple[int, ...]] = all_full
    rope_layers: Callable[[Settings, int], tuple[bool, ...]] = all_rotated


def layer_types(settings: Settings, layers: int) -> list[str] | None:
    """``layer_types`` if it is given: one of the two known types for each layer."""
    types = settings.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != layers:
        raise settings.error("layer_types", f"a list of {layers} types")
    for kind in types:
        if kind not in (FULL, SLIDING):
            raise ModelError(f"{settings.where}: layer_types names the unknown type {kind!r}")
    return types


def optional_window(settings: Settings) -> int | None:
    """``sliding_window``, ``None`` if it is null or missing."""
    if settings.get("sliding_window") is None:
        return None
    return settings.integer("sliding_window")


def typed_windows(settings: Settings, types: list[str], window: int | None) -> tuple[int, ...]:
    """The window in the layers whose type is sliding."""
    if window is None and SLIDING in types:
        raise ModelError(
            f"{settings.where}: layer_types names {SLIDING}, but the sliding window is switched off"
        )
    return tuple((window or 0) if kind == SLIDING else 0 for kind in types)
