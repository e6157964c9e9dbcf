"""What the daemon sends about requests. Unknown fields are ignored."""

from __future__ import annotations

import builtins
from typing import Any

from msgspec import UNSET, Struct, UnsetType


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
