"""Every error that a user can meet, as one tree.

Each class carries its wire code (``pagedd-protocol.7``), whether sending the same thing again can
help, the HTTP status that says the same, and the exit code of a command that ends with it.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PageddError(Exception):
    """Base of all errors that pagedd reports to a person or over the wire.

    ``detail`` is plain data for programs; ``retry_after_ms`` is a hint, only for retryable errors.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        detail: dict[str, Any] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.retry_after_ms = retry_after_ms


class BadRequest(PageddError):
    """A frame, field or value that the protocol does not allow; the message names it."""

    code = "bad_request"
    http_status = 400


class DuplicateId(BadRequest):
    """The id is in use by an open request of the same connection."""

    code = "duplicate_id"
    http_status = 409


class PromptTooLong(BadRequest):
    """The prompt, with one token to generate, exceeds what the model or the pool can hold."""

    code = "prompt_too_long"


class RequestNotFound(PageddError):
    """The named request has ended or never was."""

    code = "request_not_found"
    http_status = 404


class ModelNotFound(PageddError):
    """The model is not where it was said to be."""

    code = "model_not_found"
    http_status = 404


class QueueFull(PageddError):
    """``--max-queue`` requests are waiting already."""

    code = "queue_full"
    retryable = True
    http_status = 429
    exit_code = 75


class SlowConsumer(PageddError):
    """The client did not read; its outbox passed ``--outbox-bytes``."""

    code = "slow_consumer"
    http_status = 408


class DeadlineExceeded(PageddError):
    """The request did not end within its ``timeout_s``.

    Its HTTP status is none that clients try again by themselves, as they do 408 and 504: they would
    wait for as long once more, several times.
    """

    code = "deadline_exceeded"
    http_status = 422


class ShuttingDown(PageddError):
    """The daemon drains and takes no new requests."""

    code = "shutting_down"
    retryable = True
    http_status = 503


class EngineFailed(PageddError):
    """The engine process died or is not ready; the daemon restarts it."""

    code = "engine_failed"
    retryable = True
    http_status = 503


class InvalidLogits(PageddError):
    """The model produced NaN for this request; only this request ends."""

    code = "invalid_logits"


class OutOfDeviceMemory(PageddError):
    """The device had no memory for a step, however small."""

    code = "out_of_memory"
    retryable = True
    http_status = 503


class Unauthorized(PageddError):
    """No key, or the wrong one."""

    code = "unauthorized"
    http_status = 401


class Forbidden(PageddError):
    """A host or an origin that is not allowed."""

    code = "forbidden"
    http_status = 403


class BodyTooLarge(PageddError):
    """More bytes than ``--http-body-limit``."""

    code = "body_too_large"
    http_status = 413


class UnsupportedMediaType(PageddError):
    """Not ``application/json``."""

    code = "unsupported_media_type"
    http_status = 415


class BodyTimeout(PageddError):
    """The body did not come in time."""

    code = "timeout"
    http_status = 408


class Cancelled(PageddError):
    """Somebody else ended the request: ``pagedd cancel``, or the dashboard."""

    code = "cancelled"
    http_status = 409


class UsageError(PageddError):
    """A wrong flag, variable or configuration key: exit code 2, before anything is loaded."""

    code = "bad_request"
    http_status = 400
    exit_code = 2


class ModelError(PageddError):
    """A model's files are unreadable, incomplete, contradictory or of an unsupported kind."""

    code = "model_not_found"


class Unreachable(PageddError):
    """No daemon answers at the address."""

    code = "unreachable"
    retryable = True
    exit_code = 69


class AlreadyRunning(PageddError):
    """Another daemon holds the socket's lock, or the port is taken."""

    code = "already_running"
