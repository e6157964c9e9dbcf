"""What daemon and engine say to each other over the link: MessagePack, length-prefixed.

Daemon → engine: one frame holds a list of :data:`Command`. Engine → daemon: one frame holds one
:data:`Report`; while it serves, one :class:`Step` per step.
"""

from __future__ import annotations

from msgspec import Struct

from pagedd.core.events import Stats, StepEvents
from pagedd.core.request import Request
from pagedd.core.watch import Changes


class EngineConfig(Struct, frozen=True, kw_only=True):
    """What the engine needs to know; ``None`` means that the engine chooses. Sizes in bytes."""

    model: str
    load_format: str = "auto"  # "auto" or "dummy"
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"  # that of the activations; or "fp8_e4m3", "fp8_e5m2"
    weights: str = "auto"  # or "dense", "bf16", "int8", "int4"
    device: str = "auto"
    threads: int | None = None
    seed: int | None = None
    page_size: int | None = None
    num_pages: int | None = None
    kv_cache_memory: int | None = None
    gpu_memory_utilization: float = 0.9
    enforce_eager: bool = False
    prefix_cache: bool = True
    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    max_queue: int = 1024
    preemption_policy: str = "length"  # or "arrival", "cost"
    preemption_mode: str = "auto"  # or "swap", "recompute"
    priority_aging: float | None = None  # seconds
    fair_share: bool = False
    swap_space: int | None = None
    num_host_pages: int | None = None  # instead of swap_space


class Submit(Struct, tag="submit", frozen=True):
    """A request. ``again``: an engine before this one had it, so the queue has room for it."""

    request: Request
    again: bool = False


class CancelRequest(Struct, tag="cancel", frozen=True):
    """The client cancelled or is gone. Answered by ``Finished`` unless the request has ended."""

    handle: int


class EndChoice(Struct, tag="end_choice", frozen=True):
    """A stop string was found: the choice needs no more tokens. No answer if it has ended."""

    handle: int
    index: int


class Reprioritize(Struct, tag="reprioritize", frozen=True):
    """Another priority for a request. Answered by ``Reprioritized`` unless it has ended."""

    handle: int
    priority: int


class Explain(Struct, tag="explain", frozen=True):
    """Why is the request where it is? Always answered by ``Explained`` with this ``ref``."""

    handle: int
    ref: int


class Watch(Struct, tag="watch", frozen=True):
    """Tell with each step what has changed, everything at first; or no more (``wanted`` False)."""

    wanted: bool


class Shutdown(Struct, tag="shutdown", frozen=True):
    """Finish the step and exit with 0."""


Command = Submit | CancelRequest | EndChoice | Reprioritize | Explain | Watch | Shutdown


class Loading(Struct, tag="loading", frozen=True):
    """Progress of the load: ``fraction`` of ``phase``, 0 to 1."""

    phase: str
    fraction: float


class Ready(Struct, tag="ready", frozen=True, kw_only=True):
    """The engine serves. ``text_dir`` holds what the daemon's tokenizer needs."""

    model: str  # display name
    text_dir: str
    device: str
    dtype: str
    vocab_size: int
    max_model_len: int
    page_size: int
    num_pages: int
    num_host_pages: int
    max_num_seqs: int
    max_num_batched_tokens: int
    eos_ids: tuple[int, ...]
    # For advice on memory; 0: not known. free_bytes: of the device's memory, None: the host's.
    page_bytes: int = 0
    weights_bytes: int = 0
    free_bytes: int | None = None
    notes: tuple[str, ...]  # sentences for the log: memory sum, lowered limits, backends refused


class Step(Struct, tag="step", frozen=True):
    """Events and counters after one step.

    ``phases`` in seconds: plan, build, execute, sample, commit, and swap when pages were copied.
    """

    events: StepEvents
    stats: Stats
    phases: dict[str, float]
    changes: Changes | None = None  # while it is watched


class Fatal(Struct, tag="fatal", frozen=True):
    """The engine cannot go on; ``usage`` if the person who started it must change something."""

    code: str
    message: str
    usage: bool = False


Report = Loading | Ready | Step | Fatal
