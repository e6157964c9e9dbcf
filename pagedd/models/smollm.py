"""SmolLM3: Llama with layers that do not rotate, every fourth by default."""

from __future__ import annotations

from pagedd.models.family import FULL, SLIDING, Family, layer_types, optional_window, typed_windows
from pagedd.models.settings import Settings

DEFAULT_INTERVAL = 4


def _rope_layers(settings: Settings, layers: int) -> tuple[bool, ...]:
    interval = settings.integer("no_rope_layer_interval", DEFAULT_INTERVAL)
    flags = settings.get("no_rope_layers")  # despite its name: 1 where the layer has rope
    if flags is None:
        return tuple((layer + 1) % interval != 0 for layer in range(layers))
    if (
        not isinstance(flags, list)
        or len(flags) < layers
        or not all(isinstance(flag, int) and flag in (0, 1) for flag in flags)
    ):
        raise settings.error("no_rope_layers", f"a list of at least {layers} zeros and ones")
    return tuple(bool(flag) for flag in flags[:layers])


def _windows(settings: Settings, layers: int) -> tuple[int, ...]:
    settings.get("max_window_layers")  # published configs have it, the reference uses it nowhere
    window = optional_window(settings)
    if not settings.flag("use_sliding_window", False):
        window = None
    types = layer_types(settings, layers)
    if types is None:
        rotated = _rope_layers(settings, layers)
        types = [FULL if rope or window is None else SLIDING for rope in rotated]
    return typed_windows(settings, types, window)


SMOLLM3 = Family(
    architecture="SmolLM3ForCausalLM",
    model_type="smollm3",
    max_position=32768,
    kv_heads=4,
    rope_theta=2_000_000.0,
    tie_embeddings=True,
    attention_bias="setting",
    mlp_bias_setting=True,
    windows=_windows,
    rope_layers=_rope_layers,
)
