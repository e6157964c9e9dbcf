"""Qwen2 (bias on q, k, v) and Qwen3 (norms on q and k); windows by layer, off by default."""

from __future__ import annotations

from pagedd.models.family import FULL, SLIDING, Family, layer_types, optional_window, typed_windows
from pagedd.models.settings import Settings

DEFAULT_WINDOW = 4096
DEFAULT_FIRST_WINDOWED_LAYER = 28


def _windows(settings: Settings, layers: int) -> tuple[int, ...]:
    window = optional_window(settings) if settings.has("sliding_window") else DEFAULT_WINDOW
    first = settings.integer("max_window_layers", DEFAULT_FIRST_WINDOWED_LAYER, minimum=0)
    if not settings.flag("use_sliding_window", False):
        window = None
    types = layer_types(settings, layers)
    if types is None:
        windowed = first if window is not None else layers
        types = [FULL if layer < windowed else SLIDING for layer in range(layers)]
    return typed_windows(settings, types, window)


QWEN2 = Family(
    architecture="Qwen2ForCausalLM",
    model_type="qwen2",
    max_position=32768,
    kv_heads=32,
    attention_bias="qkv",
    windows=_windows,
)
QWEN3 = Family(
    architecture="Qwen3ForCausalLM",
    model_type="qwen3",
    max_position=32768,
    kv_heads=32,
    head_dim=128,
    attention_bias="setting",
    qk_norm=True,
    windows=_windows,
)
