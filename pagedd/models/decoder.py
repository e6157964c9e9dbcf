"""The one decoder: every supported architecture is this one with its switches set.

A layer is a handful of backend calls: norm → qkv → kv_write → paged_attention → output →
add and norm → gate and up → silu·mul → down. Matrices that read the same input are one matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pagedd.models.embedding import Embedding
from pagedd.models.reader import Reader, WeightForm
from pagedd.models.rope import Rope
from pagedd.models.spec import EMBEDDING, FINAL_NORM, OUTPUT, ModelSpec, Weights
from pagedd_kernels.backend import Backend, GreedyLayer, LinearLayer, StackingBackend
from pagedd_kernels.inputs import PagedInputs


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one layer, ready to use, and its switches."""

    input_norm: Tensor  # [hidden]
    qkv: LinearLayer  # hidden → (heads + 2 · kv_heads) · head_dim
    q_norm: Tensor | None  # [head_dim]
    k_norm: Tensor | None
    output: LinearLayer  # heads · head_dim → hidden
    post_norm: Tensor  # [hidden]
    gate_up: LinearLayer  # hidden → 2 · ffn
    down: LinearLayer  # ffn → hidden
    window: int  # 0: all keys
    rope: bool


class Decoder:
    """A decoder-only model over a paged cache; holds weights and no state of any sequence.

    Whoever calls it does so in torch's inference mode.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Weights,
        backend: Backend,
        device: torch.device,
        progress: Callable[[float], None] = lambda fraction: None,
        form: WeightForm = "auto",
    ) -> None:
        """Read all weights for ``spec.dtype`` onto ``device``; ``progress`` gets 0 … 1."""
        self.spec = spec
        self.backend = backend
        self.rope = Rope(spec.rope, device)
        reader = Reader(spec, weights, backend, device, form)
        embedding = reader.matrix(EMBEDDING)  # [vocab, hidden]
        look_up = backend.embedding if isinstance(backend, StackingBackend) else Embedding
        self.embedding: LinearLayer = look_up(embedding)
        layers = []
        for index in range(spec.num_layers):
            layers.append(_layer(spec, reader, index))
            progress((index + 1) / (spec.num_layers + 1))
        self.layers = tuple(layers)
        self.final_norm = reader.tensor(FINAL_NORM)
        output = embedding if spec.tie_embeddings else reader.matrix(OUTPUT)
        self.output = backend.linear(output, None, torch.float32)
        self._stack = None
        if isinstance(backend, StackingBackend):
            self._stack = backend.stack(
                self.layers, self.final_norm, eps=spec.rms_norm_eps, scale=spec.scale
            )
        progress(1.0)

    @property
    def weight_bytes(self) -> int:
        """Memory of all weights as they are kept; a matrix that serves twice counts once."""
        kept = [*self.embedding.tensors, self.final_norm, *self.output.tensors]
        for layer in self.layers:
            norms = (layer.input_norm, layer.q_norm, layer.k_norm, layer.post_norm)
            kept += [norm for norm in norms if norm is not None]
            for linear in (layer.qkv, layer.output, layer.gate_up, layer.down):
                kept += linear.tensors
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in kept}.values())

    def forward(
        self,
        token_ids: Tensor,
        inputs: PagedInputs,
        cache: Tensor,
        prompt_lens: Tensor,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Compute the rows of a step and write their keys and values into ``cache``.

        ``token_ids [tokens]`` int64; ``cache [num_pages, layers, 2, kv_heads, page_size,
        head_dim]``; ``prompt_lens [num_seqs]`` int32, length of each sequence's prompt, used only
        where the rope depends on it. → hidden states ``[wanted, hidden]`` after the final norm,
        of the rows ``wanted [n]`` int64, ascending and distinct; None: of all.
        """
        ops, eps = self.backend, self.spec.rms_norm_eps
        rope = self._rope_rows(inputs, prompt_lens)
        residual = self.embedding(token_ids)
        if self._stack is not None:
            return self._stack(residual, cache, inputs, rope, wanted)
        x = ops.rms_norm(residual, self.layers[0].input_norm, eps)
        for index, layer in enumerate(self.layers):
            q = ops.kv_write(
                layer.qkv(x),
                cache,
                index,
                inputs,
                rope=rope if layer.rope else None,
                q_norm=layer.q_norm,
                k_norm=layer.k_norm,
                eps=eps,
            )
            x = ops.paged_attention(
                q, cache, index, inputs, scale=self.spec.scale, window=layer.window
            )
            x = ops.add_rms_norm(layer.output(x), residual, layer.post_norm, eps)
            x = layer.down(ops.silu_mul(layer.gate_up(x)))
            last = index + 1 == len(self.layers)
            norm = self.final_norm if last else self.layers[index + 1].input_norm
            x = ops.add_rms_norm(x, residual, norm, eps)
        return x if wanted is None else x.index_select(0, wanted)

    def logits(self, hidden: Tensor) -> Tensor:
        """``[rows, hidden]`` → ``[rows, vocab]`` float32."""
        return self.output(hidden)

    def greedy(self, hidden: Tensor) -> Tensor | None:
        """``[rows, hidden]`` → ``[rows]`` int64: the least id of the largest logit, -1 for NaN.

        None: the backend cannot do it without logits.
        """
        return self.output.greedy(hidden) if isinstance(self.output, GreedyLayer) else None

    def _rope_rows(self, inputs: PagedInputs, prompt_lens: Tensor) -> Tensor:
        """Cosines and sines ``[tokens, rope_dim]`` of the step, the same for every layer."""
        positions = inputs.positions
        if not self.spec.rope.length_dependent:
            return self.rope.rows(positions)
        # The reference computes a prompt at once, so all its rows know its whole length, and each
        # later row only what came before it. Chunks and recomputation must give the same keys.
        row = torch.arange(positions.shape[0], device=positions.device, dtype=torch.int32)
        sequence = torch.searchsorted(inputs.cu_seqlens[1:], row, right=True)
        prompts = prompt_lens[sequence.clamp(max=inputs.num_seqs - 1)]
        return self.rope.rows(positions, torch.maximum(prompts, positions + 1))


def _layer(spec: ModelSpec, reader: Reader, index: int) -> Layer:
    prefix = f"model.layers.{index}."
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    return Layer(
        input_norm=reader.tensor(prefix + "input_layernorm.weight"),
        qkv=reader.linear(attention, ("q_proj", "k_proj", "v_proj"), bias=spec.qkv_bias),
        q_norm=reader.tensor(attention + "q_norm.weight") if spec.qk_norm else None,
        k_norm=reader.tensor(attention + "k_norm.weight") if spec.qk_norm else None,
        output=reader.linear(attention, ("o_proj",), bias=spec.o_bias),
        post_norm=reader.tensor(prefix + "post_attention_layernorm.weight"),
        gate_up=reader.linear(mlp, ("gate_proj", "up_proj"), bias=spec.mlp_bias),
        down=reader.linear(mlp, ("down_proj",), bias=spec.mlp_bias),
        window=spec.windows[index],
        rope=spec.rope_layers[index],
    )
