"""Errors as frames: one code, one class, one answer to "does trying again help?"."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from pagedd.codes import class_of
from pagedd.core.events import Failed
from pagedd.errors import BadRequest, PageddError
from pagedd.protocol import Error, Params
from pagedd.server.structure import blaming

# A hint for clients that try again: about the time of a short answer, or of an engine's restart.
RETRY_AFTER_MS = {"queue_full": 1000, "engine_failed": 2000}


def error_frame(error: PageddError, *, id: str | None = None, ref: str | None = None) -> Error:
    """``id``: the request that this ends; ``ref``: the id that a failed frame named."""
    retry = error.retry_after_ms or RETRY_AFTER_MS.get(error.code)
    return Error(
        code=error.code,
        message=error.message,
        retryable=error.retryable,
        id=_or_unset(id),
        ref=_or_unset(ref),
        retry_after_ms=UNSET if retry is None else retry,
        detail=UNSET if not error.detail else error.detail,
    )


def failure(event: Failed, params: Params) -> PageddError:
    """The engine's refusal or failure of one request, as an error of its code.

    The engine knows nothing of the field that a grammar came from.
    """
    detail: dict[str, Any] = dict(event.detail)
    message = event.message
    if event.code == BadRequest.code and message.startswith("the grammar "):
        message = blaming(params, message)
    return class_of(event.code)(message, detail=detail, retry_after_ms=event.retry_after_ms)


def _or_unset(name: str | None) -> str | UnsetType:
    return UNSET if name is None else name
