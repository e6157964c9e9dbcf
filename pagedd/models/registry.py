"""The architectures that can be served, by the names that configs use for them."""

from __future__ import annotations

from pagedd.models.family import Family
from pagedd.models.llama import LLAMA
from pagedd.models.mistral import MISTRAL
from pagedd.models.qwen import QWEN2, QWEN3
from pagedd.models.smollm import SMOLLM3

FAMILIES: tuple[Family, ...] = (LLAMA, MISTRAL, QWEN2, QWEN3, SMOLLM3)


def find_family(*, architecture: str | None, model_type: str | None) -> Family | None:
    """The family of an architecture, or where that is not given of a model type."""
    for family in FAMILIES:
        if architecture == family.architecture:
            return family
        if architecture is None and model_type == family.model_type:
            return family
    return None
