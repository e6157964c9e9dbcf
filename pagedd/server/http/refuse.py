"""Errors as HTTP answers, in the form that OpenAI's clients parse."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from pagedd.codes import class_of
from pagedd.errors import PageddError
from pagedd.protocol import Error
from pagedd.server.http.answers import ErrorAnswer, ErrorBody
from pagedd.server.replies import RETRY_AFTER_MS

# Clients that shorten a chat which has grown too long look for this code.
_CODES = {"prompt_too_long": "context_length_exceeded"}
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_FIELD = re.compile(r"(?:params\.)?([a-z_]+(?:[.\[][\w.\[\]]*)?): ")


def error_answer(error: PageddError) -> ErrorAnswer:
    """The body: the field that is meant, if the message begins with one, is ``param``."""
    status = error.http_status
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    message = error.message.removeprefix("params.").removeprefix("params: ")
    found = _FIELD.match(message) if status < 500 else None
    param = None if found is None else found[1]
    return ErrorAnswer(ErrorBody(message, kind, param, _CODES.get(error.code, error.code)))


def refuse(error: PageddError, headers: Mapping[str, str] | None = None) -> Response:
    """The whole answer; with ``Retry-After`` in whole seconds where trying again can help."""
    fields = dict(headers or {})
    retry_ms = error.retry_after_ms or RETRY_AFTER_MS.get(error.code)
    if retry_ms is not None:
        fields["Retry-After"] = str(-(-retry_ms // 1000))
    return json_response(error_answer(error), error.http_status, fields)


def json_response(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Any struct as JSON."""
    data = msgspec.json.encode(body)
    return Response(data, status, dict(headers or {}), media_type="application/json")


def error_of(frame: Error) -> PageddError:
    """An error frame as the exception it came from."""
    detail = frame.detail if isinstance(frame.detail, dict) else None
    retry = frame.retry_after_ms if isinstance(frame.retry_after_ms, int) else None
    return class_of(frame.code)(frame.message, detail=detail, retry_after_ms=retry)
