"""The daemon's status: the same content as ``pagedd status --json``."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class RequestCounts(Struct, frozen=True):
    running: int
    waiting: int
    swapped: int
    finished_total: int
    cancelled_total: int
    failed_total: int


class PageCounts(Struct, frozen=True):
    """free + cached + owned + shared = total."""

    total: int
    free: int
    cached: int
    owned: int
    shared: int


class HostPageCounts(Struct, frozen=True):
    """free + swapped + cached = total."""

    total: int
    free: int
    swapped: int
    cached: int


class PreemptionCounts(Struct, frozen=True):
    swap: int
    recompute: int


class PrefixCounts(Struct, frozen=True):
    """In tokens."""

    queries: int
    hits: int


class TokenCounts(Struct, frozen=True):
    prompt: int
    generated: int
    per_second: float


class Status(Struct, tag="status", frozen=True, kw_only=True):
    """The same content as ``pagedd status --json``."""

    version: str
    boot_id: str
    state: Literal["loading", "ready", "stalled", "failed", "draining"]
    pid: int
    engine_pid: int
    uptime_s: float
    model: str
    device: str
    dtype: str
    page_size: int
    max_model_len: int
    requests: RequestCounts
    pages: PageCounts
    host_pages: HostPageCounts
    preemptions: PreemptionCounts
    recomputed_tokens: int
    swapped_bytes: int
    prefix: PrefixCounts
    tokens: TokenCounts
    step_ms: dict[str, float]
    connections: int
    endpoints: list[str]
    reason: str | UnsetType = UNSET
    advice: str | UnsetType = UNSET
    # The same as above under the names that other servers' dashboards use; usage is 0 to 1.
    num_requests_running: int = 0
    num_requests_waiting: int = 0
    num_requests_swapped: int = 0
    gpu_cache_usage: float = 0.0
    host_cache_usage: float = 0.0
    num_preemptions: int = 0
    num_steps: int = 0
    unused_slots: int = 0  # token slots in held pages that hold no token
    spilled_pages: int = 0  # evicted from the device into host memory
    host_hits: int = 0  # tokens of prefix.hits that were found in host memory
    ref: str | UnsetType = UNSET
