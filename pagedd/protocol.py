"""The wire protocol, version 1, as structs. The manual is ``pagedd-protocol.7``.

This module imports msgspec alone: server, client and dashboard share it. Client frames refuse
unknown fields; server frames ignore them, so that an old client can talk to a new daemon.
"""

from __future__ import annotations

import builtins
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

VERSION = 1
SUBPROTOCOL_JSON = "pagedd.v1.json"
SUBPROTOCOL_MSGPACK = "pagedd.v1.msgpack"
MAX_FRAME_BYTES = 16 * 1024 * 1024
PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0

# Bounds of the engine's integers: the seed is a 64-bit key, everything else fits 32 bits.
INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
INT64_MAX = 2**63 - 1
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024

Id = Annotated[str, Meta(min_length=1, max_length=128)]
TokenId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Priority = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]


class Params(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sampling parameters; names and meaning as in vLLM's SamplingParams."""

    max_tokens: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    # so that no product of a logit leaves float32
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    seed: Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=1024)] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    logit_bias: dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    n: Annotated[int, Meta(ge=1, le=INT32_MAX)] = 1
    skip_special_tokens: bool = True


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a chat."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str


class Generate(Struct, tag="generate", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for text: exactly one of ``prompt``, ``prompt_tokens`` and ``messages``."""

    id: Id
    prompt: str | None = None
    prompt_tokens: list[TokenId] | None = None
    messages: list[Message] | None = None
    params: Params = Params()
    priority: Priority = 0
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    stream: bool = True


class Cancel(Struct, tag="cancel", frozen=True, forbid_unknown_fields=True):
    """End a request; it answers with ``done`` whose reason is ``cancelled``."""

    id: Id


class Explain(Struct, tag="explain", frozen=True, forbid_unknown_fields=True):
    """Ask why a request is where it is."""

    id: Id


class Reprioritize(Struct, tag="reprioritize", frozen=True, forbid_unknown_fields=True):
    """Give a waiting or running request another priority."""

    id: Id
    priority: Priority


class Subscribe(Struct, tag="subscribe", frozen=True, forbid_unknown_fields=True):
    """Start a feed."""

    topic: Literal["state", "events"]
    hz: Annotated[float, Meta(ge=0.1, le=30)] = 10.0


class Unsubscribe(Struct, tag="unsubscribe", frozen=True, forbid_unknown_fields=True):
    """End a feed."""

    topic: Literal["state", "events"]


class StatusRequest(Struct, tag="status", frozen=True, forbid_unknown_fields=True):
    """Ask for the daemon's status; ``ref`` is echoed."""

    ref: Annotated[str, Meta(max_length=128)] | None = None


ClientFrame = Generate | Cancel | Explain | Reprioritize | Subscribe | Unsubscribe | StatusRequest


class Limits(Struct, frozen=True):
    """What a client must keep to; ``max_frame`` in bytes."""

    max_frame: int
    max_queue: int
    max_num_seqs: int
    max_n: int
    max_logprobs: int
    vocab_size: int


class Hello(Struct, tag="hello", frozen=True):
    """The first frame, always."""

    version: int
    boot_id: str
    model: str
    max_model_len: int
    page_size: int
    num_pages: int
    num_host_pages: int
    limits: Limits
    features: list[str]


class Accepted(Struct, tag="accepted", frozen=True):
    id: str
    queue_position: int
    prompt_tokens: int


class Started(Struct, tag="started", frozen=True):
    id: str
    cached_tokens: int
    queued_ms: float


class TopLogprob(Struct, frozen=True):
    id: int
    token: str
    logprob: float


class Logprob(Struct, frozen=True):
    """One drawn token: its text, its bytes (base64 in JSON), and the alternatives."""

    id: int
    token: str
    bytes: builtins.bytes
    logprob: float
    top: list[TopLogprob]


class Delta(Struct, tag="delta", frozen=True, omit_defaults=True):
    """New text of one choice. ``seq`` counts 1, 2, … per request."""

    id: str
    index: int
    seq: int
    text: str
    tokens: list[int]
    logprobs: list[Logprob] | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET
    stop_reason: str | int | UnsetType = UNSET


class Preempted(Struct, tag="preempted", frozen=True):
    id: str
    mode: str
    reason: str
    pages: int


class Resumed(Struct, tag="resumed", frozen=True):
    id: str
    mode: str
    reason: str
    pages: int


class Choice(Struct, frozen=True, omit_defaults=True):
    """How one choice ended; with its content when the request did not stream."""

    index: int
    finish_reason: str
    stop_reason: str | int | UnsetType = UNSET
    text: str | UnsetType = UNSET
    tokens: list[int] | UnsetType = UNSET
    logprobs: list[Logprob] | UnsetType = UNSET


class Usage(Struct, frozen=True):
    """Tokens; ``completion_tokens`` of all choices, end tokens counted."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Ledger(Struct, frozen=True):
    """Where a request's time and memory went."""

    queued_ms: float
    prefill_ms: float
    decode_ms: float
    preempted_ms: float
    preemptions: int
    pages_peak: int
    page_seconds: float
    recomputed_tokens: int
    swapped_bytes: int


class Done(Struct, tag="done", frozen=True):
    id: str
    choices: list[Choice]
    usage: Usage
    ledger: Ledger


class Error(Struct, tag="error", frozen=True, omit_defaults=True):
    """``id``: the request that this ends. ``ref``: the id a failed frame named; it ends nothing."""

    code: str
    message: str
    retryable: bool
    id: str | UnsetType = UNSET
    ref: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    detail: dict[str, Any] | UnsetType = UNSET


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


class Status(Struct, tag="status", frozen=True, omit_defaults=True):
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
    ref: str | UnsetType = UNSET


ServerFrame = Hello | Accepted | Started | Delta | Preempted | Resumed | Done | Error | Status
