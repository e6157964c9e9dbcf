"""Builders of tiny float32 checkpoints, written by transformers as real ones are.

``build("qwen3", folder)`` → a folder with config.json, model.safetensors, generation_config.json
and a tokenizer. Weights are large enough that attention matters: the greedy text depends on the
whole context, so that a wrong page, position or mask changes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.tiny.tokenizer import BOS, CHAT_TEMPLATE, EOS, PAD, VOCAB_SIZE, save_tokenizer

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
    "qwen3": {"head_dim": 24},
    "smollm3": {"no_rope_layer_interval": 2, "tie_word_embeddings": True},
}


def build(
    kind: str,
    folder: Path,
    *,
    seed: int = 0,
    add_bos: bool = False,
    chat_template: str | None = CHAT_TEMPLATE,
    **config_overrides: Any,
) -> Path:
    """Write a random checkpoint of ``kind`` (a key of KINDS) into ``folder`` and return it.

    ``config_overrides`` are fields of the config, such as ``rope_scaling`` or ``head_dim``.
    """
    model = random_model(kind, seed=seed, **config_overrides)
    return save(model, folder, add_bos=add_bos, chat_template=chat_template)


def random_model(kind: str, *, seed: int = 0, **config_overrides: Any) -> Any:
    """The transformers model (float32, eval mode) that :func:`build` writes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **{**COMMON, **KINDS[kind], **config_overrides})
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_draw(name, parameter.shape, generator))
    return model


def save(model: Any, folder: Path, **tokenizer_options: Any) -> Path:
    """Write model and tokenizer into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    save_tokenizer(folder, **tokenizer_options)
    return folder


def _draw(name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Values that leave no tensor without effect on the logits (std about 3)."""
    noise = torch.randn(shape, generator=generator)
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.5 + 0.8 * noise
    if name == "model.norm.weight":
        return 1.2 + 0.1 * noise
    if name.endswith("norm.weight"):
        return 1.0 + 0.2 * noise
    if name.endswith(".bias"):
        return 0.5 * noise
    if name.endswith(("embed_tokens.weight", "lm_head.weight")):
        return 0.35 * noise
    return noise * 1.5 / math.sqrt(shape[-1])


def edit_config(folder: Path, drop: Sequence[str] = (), **changes: Any) -> Path:
    """Drop keys of config.json, then set others: what older tools or people may have written."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    kept = {key: value for key, value in config.items() if key not in drop}
    path.write_text(json.dumps({**kept, **changes}, indent=1))
    return folder


def steered(
    folder: Path,
    cycle: Sequence[int | str | bytes],
    *,
    table: Mapping[int, int] | None = None,
    add_bos: bool = False,
    chat_template: str | None = CHAT_TEMPLATE,
    max_position_embeddings: int = 4096,
    logit: float = 18.0,
) -> Path:
    """Write a model that emits ``cycle`` again and again, whatever the prompt.

    An ``int`` is an id; text or bytes become a token of their own (ids 300, 301, … in order of
    appearance). After ``cycle[i]`` comes ``cycle[i + 1]``, after the last the first, and after any
    token that is not in it ``cycle[0]``; so no token may appear twice. ``table`` changes single
    successors. The chosen token has the logit ``logit``, all others 0.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    pieces = [item for item in cycle if not isinstance(item, int)]
    fresh = iter(range(VOCAB_SIZE, VOCAB_SIZE + len(pieces)))
    ids = [item if isinstance(item, int) else next(fresh) for item in cycle]
    if len(set(ids)) != len(ids):
        raise ValueError("a token has one successor: no token may be twice in a cycle")
    vocab = VOCAB_SIZE + len(pieces)
    successor = [ids[0]] * vocab
    for token, follower in [*zip(ids, [*ids[1:], ids[0]], strict=True), *(table or {}).items()]:
        successor[token] = follower
    sizes = {"vocab_size": vocab, "hidden_size": 4 * math.ceil(vocab / 4), "head_dim": 16}
    config = LlamaConfig(
        **{
            **COMMON,
            **sizes,
            "max_position_embeddings": max_position_embeddings,
            "intermediate_size": 16,
        }
    )
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        rows = torch.arange(vocab)
        model.model.embed_tokens.weight[rows, rows] = 1.0
        # The final norm turns the single 1 of a row into sqrt(hidden).
        model.lm_head.weight[torch.tensor(successor), rows] = logit / math.sqrt(config.hidden_size)
    return save(model, folder, pieces=pieces, add_bos=add_bos, chat_template=chat_template)
