"""Llama: no bias unless the config says so, no window. SmolLM and SmolLM2 are of this family."""

from __future__ import annotations

from pagedd.models.family import Family

LLAMA = Family(
    architecture="LlamaForCausalLM",
    model_type="llama",
    max_position=2048,
    attention_bias="setting",
    mlp_bias_setting=True,
)
