"""Mistral: Llama with one sliding window for all layers."""

from __future__ import annotations

from pagedd.errors import ModelError
from pagedd.models.family import FULL, Family, layer_types, optional_window
from pagedd.models.settings import Settings

DEFAULT_WINDOW = 4096


def _windows(settings: Settings, layers: int) -> tuple[int, ...]:
    # A missing key means the reference's default, null means no window.
    window = optional_window(settings) if settings.has("sliding_window") else DEFAULT_WINDOW
    types = layer_types(settings, layers)
    if types is not None and window is not None and FULL in types:
        raise ModelError(
            f"{settings.where}: layer_types names {FULL}, but sliding_window is {window} "
            "for all layers of this architecture"
        )
    return (window or 0,) * layers


MISTRAL = Family(
    architecture="MistralForCausalLM",
    model_type="mistral",
    max_position=131072,
    kv_heads=8,
    windows=_windows,
)
