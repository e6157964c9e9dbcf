"""What a decoder-only model is: its sizes, switches, rope and the names of its tensors.

Readers of ``config.json`` and of GGUF metadata both end in a :class:`ModelSpec`; everything after
them (decoder, runner, engine) reads nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from pagedd_kernels.quantized import BlockQuantized

RopeKind = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding: how the inverse frequencies are made (see :mod:`.rope`).

    Only the fields of the kind are read. ``None`` means that the kind's own default holds.
    """

    kind: RopeKind
    theta: float
    dim: int  # rotated values per head, even, ≤ head_dim: pairs are (i, i + dim / 2)
    max_position: int  # the checkpoint's own statement (max_position_embeddings)
    original_max_position: int  # length of the pre-training
    factor: float | None = None
    attention_factor: float | None = None  # multiplies cos and sin (yarn, longrope)
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float | None = None  # llama3
    high_freq_factor: float | None = None
    short_factor: tuple[float, ...] = ()  # longrope, [dim / 2]
    long_factor: tuple[float, ...] = ()
    proportion: float = 1.0  # proportional: share of the pairs that turn at all
    frequency_factors: tuple[float, ...] = ()  # default: divisors [dim / 2] (GGUF rope_freqs)

    @property
    def length_dependent(self) -> bool:
        """Whether a row's rotation depends on the length of its sequence.

        Then the keys of one prefix differ between prompts of different lengths, and a prefix cache
        must be salted with the prompt's length.
        """
        return self.longest_free_prompt is not None

    @property
    def longest_free_prompt(self) -> int | None:
        """Longest prompt whose rotation does not depend on its length; None: any prompt's."""
        limits = {"dynamic": self.max_position, "longrope": self.original_max_position}
        return limits.get(self.kind)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model of the Llama family with its switches. Sizes in elements, lengths in tokens."""

    name: str  # for people
    architecture: str  # as checkpoints say it: "LlamaForCausalLM"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeSpec
    windows: tuple[int, ...]  # [num_layers], keys that a query sees (itself included); 0 = all
    rope_layers: tuple[bool, ...]  # [num_layers], False: no rotation in this layer
    max_position: int  # longest sequence that the model is made for, rope scaling included
    dtype: torch.dtype  # of the checkpoint when read from files; of the activations once loaded
    eos_ids: frozenset[int] = frozenset()
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # RMS norm over head_dim on q and k, before the rotation
    tie_embeddings: bool = False  # no output matrix of its own
    kv_dtype: torch.dtype | None = None  # of the cache; None: that of the activations

    @property
    def scale(self) -> float:
        """Multiplier of the attention scores."""
        return float(self.head_dim**-0.5)

    @property
    def cache_dtype(self) -> torch.dtype:
        """Of keys and values in the cache."""
        return self.kv_dtype or self.dtype

    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token across all layers."""
        values = 2 * self.num_layers * self.num_kv_heads * self.head_dim
        return values * self.cache_dtype.itemsize


class Weights(Protocol):
    """Tensors of a checkpoint under the names of :func:`tensor_shapes`.

    A reader of a foreign container translates its names, undoes its permutations and
    dequantises; ``get`` returns float32, bfloat16 or float16, on the CPU, possibly memory-mapped.
    ``matrix`` gives the same values for computing in one dtype, as narrow as the checkpoint has
    them.
    """

    def names(self) -> set[str]:
        """Every tensor that the checkpoint holds, unknown ones under their own names."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor without reading it; raises ``ModelError`` if it is missing."""
        ...

    def get(self, name: str) -> Tensor:
        """The tensor; raises ``ModelError`` naming it if it is missing or unreadable."""
        ...

    def matrix(self, name: str, dtype: torch.dtype) -> Tensor | BlockQuantized:
        """A tensor in blocks, for computing in ``dtype``, or dense in a float dtype. Raises as
        ``get``.
        """
        ...


EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
OUTPUT = "lm_head.weight"


def tensor_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that the model needs.

    ``lm_head.weight`` is left out when the embeddings are tied.
    """
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (spec.vocab_size, spec.hidden_size)}
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}."
        shapes.update({prefix + name: shape for name, shape in layer_shapes(spec).items()})
    shapes[FINAL_NORM] = (spec.hidden_size,)
    if not spec.tie_embeddings:
        shapes[OUTPUT] = (spec.vocab_size, spec.hidden_size)
    return shapes


def layer_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name (after ``model.layers.N.``) and shape of the tensors of one layer."""
    hidden, ffn = spec.hidden_size, spec.intermediate_size
    q_rows, kv_rows = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q_rows, hidden),
        "self_attn.k_proj.weight": (kv_rows, hidden),
        "self_attn.v_proj.weight": (kv_rows, hidden),
        "self_attn.o_proj.weight": (hidden, q_rows),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    if spec.qkv_bias:
        shapes["self_attn.q_proj.bias"] = (q_rows,)
        shapes["self_attn.k_proj.bias"] = shapes["self_attn.v_proj.bias"] = (kv_rows,)
    if spec.o_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if spec.mlp_bias:
        shapes["mlp.gate_proj.bias"] = shapes["mlp.up_proj.bias"] = (ffn,)
        shapes["mlp.down_proj.bias"] = (hidden,)
    if spec.qk_norm:
        shapes["self_attn.q_norm.weight"] = shapes["self_attn.k_norm.weight"] = (spec.head_dim,)
    return shapes
