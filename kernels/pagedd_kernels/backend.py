"""The operations a backend offers, and which backend serves a device.

Backends are tried in the order of ``BACKENDS``. One that cannot serve says why in a sentence, and
the reasons travel with the choice, so that a slow fallback is never silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from pagedd_kernels.inputs import PagedInputs
from pagedd_kernels.quantized import BlockQuantized


class LinearLayer(Protocol):
    """``x [rows, in] → [rows, out]`` with weights that the backend has packed."""

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...  # all that it keeps, for sums of memory

    def __call__(self, x: Tensor, /) -> Tensor: ...


@runtime_checkable
class GreedyLayer(LinearLayer, Protocol):
    """A layer that can also tell which output is the largest, without giving the others."""

    def greedy(self, x: Tensor, /) -> Tensor:
        """``x [rows, in] → [rows]`` int64: the least id of the largest; -1: NaN, nothing finite."""
        ...


class Backend(Protocol):
    """Every operation of a decoder step over the paged cache.

    The cache is ``[num_pages, layers, 2, kv_heads, page_size, head_dim]`` (2: keys, values) in the
    activations' dtype. Pages and layers may lie anywhere, a layer's part of a page is in one piece.
    All arithmetic is float32 inside, rounded once when it is stored.
    """

    name: str
    # whether quantised weights stay so in memory; where not, ``linear`` makes them dense
    quantized: bool

    def kv_write(
        self,
        qkv: Tensor,
        cache: Tensor,
        layer: int,
        inputs: PagedInputs,
        *,
        rope: Tensor | None,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
    ) -> Tensor:
        """Normalise and rotate queries and keys in place, then write keys and values.

        ``qkv [tokens, (heads + 2·kv_heads)·head_dim]``: a row is query heads, key heads, value
        heads. ``q_norm``/``k_norm [head_dim]``: RMS norm of each head first. ``rope [tokens,
        rope_dim]`` float32: cosines in the first half, sines in the second, dimension i paired with
        i + rope_dim/2, the dimensions from rope_dim on left alone. A row whose slot is -1 is not
        written. Returns the queries, a view ``[tokens, heads, head_dim]`` of ``qkv``.
        """
        ...

    def paged_attention(
        self,
        q: Tensor,
        cache: Tensor,
        layer: int,
        inputs: PagedInputs,
        *,
        scale: float,
        window: int = 0,
    ) -> Tensor:
        """Causal attention of each row over its sequence's pages.

        ``q [tokens, heads, head_dim]`` (last dimension dense) → ``[tokens, heads·head_dim]``. With
        ``window`` w > 0 the query at position p sees the keys p-w+1 … p. A sequence of length 0
        (padding) gives zeros; rows beyond ``cu_seqlens[-1]`` hold any value.
        """
        ...

    def page_copy(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """Copy whole pages: ``pairs [n, 2]`` int64 of (page of ``source``, page of ``target``).

        Both are caches of one page shape, on the device, with pages in one piece; in a CPU's memory
        their layers may lie apart. No two pairs name the same page of ``target``. They may be one
        tensor: then no page is in both columns.
        """
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """``x / sqrt(mean(x²) + eps) · weight`` over the last dimension."""
        ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """``residual += x`` in place, then the RMS norm of it."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """``[tokens, 2·ffn]`` → ``silu(first half) · second half``, ``[tokens, ffn]``."""
        ...

    def linear(
        self,
        weight: Tensor | BlockQuantized,
        bias: Tensor | None,
        out_dtype: torch.dtype | None = None,
    ) -> LinearLayer:
        """A function ``x [rows, in] → [rows, out]`` for ``weight [out, in]``, packed as it likes.

        Quantised weights stand for their ``dequantize()`` and give the same results, bit for bit.

        ``out_dtype`` is the result's; None: that of ``x``. For logits, float32: where a backend
        can, it then gives the sums unrounded. The backend may keep a form of its own of the weight
        and does not change the one that was passed.
        """
        ...


class BlockWeights(Protocol):
    """One decoder layer: norm → qkv → attention → output → norm → gate and up → down.

    The linear layers are those that the backend's ``linear`` gave, in the activations' dtype.
    """

    @property
    def input_norm(self) -> Tensor: ...  # [hidden]
    @property
    def qkv(self) -> object: ...  # hidden → (heads + 2 · kv_heads) · head_dim
    @property
    def q_norm(self) -> Tensor | None: ...  # [head_dim]
    @property
    def k_norm(self) -> Tensor | None: ...
    @property
    def output(self) -> object: ...  # heads · head_dim → hidden
    @property
    def post_norm(self) -> Tensor: ...  # [hidden]
    @property
    def gate_up(self) -> object: ...  # hidden → 2 · ffn
    @property
    def down(self) -> object: ...  # ffn → hidden
    @property
    def window(self) -> int: ...  # 0: all keys
    @property
    def rope(self) -> bool: ...


@runtime_checkable
class StackingBackend(Backend, Protocol):
    """A backend that can also look embeddings up, and run all layers of a decoder in one call."""

    def embedding(self, weight: Tensor | BlockQuantized) -> LinearLayer:
        """A function ``ids [tokens] int64 → [tokens, hidden]``: rows of ``weight``, dense.

        IndexError: an id is no row of it.
        """
        ...

    def stack(
        self, blocks: Sequence[BlockWeights], final_norm: Tensor, *, eps: float, scale: float
    ) -> Callable[[Tensor, Tensor, PagedInputs, Tensor | None, Tensor | None], Tensor]:
        """A function ``(residual, cache, inputs, rope, wanted) → hidden`` of the layers ``blocks``.

        ``residual [tokens, hidden]`` are the embeddings and are used up. ``hidden [wanted,
        hidden]`` is after the final norm, for the rows ``wanted [n]`` int64, contiguous, ascending
        and distinct; None: all. The result equals that of the single operations, bit for bit.
        """
        ...


class BackendClass(Protocol):
    """What the registry needs of a backend's class."""

    def __call__(self) -> Backend: ...

    def unavailable(
        self, device: torch.device, dtype: torch.dtype, cache_dtype: torch.dtype | None = None
    ) -> str | None:
        """Why this backend cannot serve, in one sentence without a full stop; None if it can.

        ``cache_dtype``: None is ``dtype``.
        """
        ...


class Entry(NamedTuple):
    """A backend of the registry, imported only when it is asked."""

    name: str
    module: str
    attribute: str
    devices: frozenset[str]  # device types it is chosen for when no backend is named

    def load(self) -> BackendClass | str:
        """The class, or why it cannot be imported."""
        try:
            return cast(BackendClass, getattr(import_module(self.module), self.attribute))
        except ImportError as error:
            return f"cannot be imported: {error}"


BACKENDS: tuple[Entry, ...] = (
    Entry("triton", "pagedd_kernels.triton_.backend", "TritonBackend", frozenset({"cuda"})),
    Entry("cpu", "pagedd_kernels.cpu.backend", "CpuBackend", frozenset({"cpu"})),
    Entry("torch", "pagedd_kernels.reference", "TorchBackend", frozenset({"cuda", "cpu"})),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The backend chosen, and (name, reason) of each one preferred to it that refused."""

    backend: Backend
    refused: list[tuple[str, str]]


def select_backend(
    device: torch.device,
    dtype: torch.dtype,
    name: str = "auto",
    cache_dtype: torch.dtype | None = None,
) -> Selection:
    """The best backend for activations of ``dtype`` on ``device``, or the one named.

    ``cache_dtype``: of the KV cache; None: that of the activations.

    Raises ValueError when the backend named is unknown or refuses, and when none can serve.
    """
    names = [entry.name for entry in BACKENDS]
    if name != "auto" and name not in names:
        raise ValueError(f"unknown kernel backend {name!r}: one of auto, {', '.join(names)}")
    refused: list[tuple[str, str]] = []
    asked = (device, dtype, cache_dtype)
    for entry in BACKENDS:
        if name not in ("auto", entry.name):
            continue
        chosen = _try(entry, *asked, named=name == entry.name)
        if not isinstance(chosen, str):
            return Selection(chosen, refused)
        if name == entry.name:
            raise ValueError(f"kernel backend {name!r} cannot serve: {chosen}")
        refused.append((entry.name, chosen))
    reasons = "; ".join(f"{refuser}: {reason}" for refuser, reason in refused)
    raise ValueError(f"no kernel backend serves {dtype} on {device} ({reasons})")


def _try(
    entry: Entry,
    device: torch.device,
    dtype: torch.dtype,
    cache_dtype: torch.dtype | None,
    *,
    named: bool,
) -> Backend | str:
    """An instance of the backend, or the reason it refuses."""
    if not named and device.type not in entry.devices:
        return f"serves {' and '.join(sorted(entry.devices))} devices, not {device.type}"
    loaded = entry.load()
    if isinstance(loaded, str):
        return loaded
    return loaded.unavailable(device, dtype, cache_dtype) or loaded()
