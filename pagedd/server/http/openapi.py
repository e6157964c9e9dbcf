"""The OpenAPI document, made from the structs that requests are decoded with."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedd.server.http import answers
from pagedd.server.http.bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from pagedd.server.http.gateway import MAX_NAME, Gateway
from pagedd.server.http.refuse import json_response

_REF = "#/components/schemas/{name}"
_POSTS: tuple[tuple[str, str, type, type, type | None], ...] = (
    # path, what it does, body, answer, an event of its stream if it may be one
    (
        "/v1/chat/completions",
        "The assistant's turn",
        ChatBody,
        answers.ChatCompletion,
        answers.ChatChunk,
    ),
    (
        "/v1/completions",
        "Texts go on",
        CompletionBody,
        answers.TextCompletion,
        answers.TextCompletion,
    ),
    ("/tokenize", "A text's tokens", TokenizeBody, answers.Tokens, None),
    ("/detokenize", "The text of tokens", DetokenizeBody, answers.Text, None),
)
_GETS: tuple[tuple[str, str, type | None], ...] = (
    ("/v1/models", "The model that is served", answers.ModelList),
    ("/v1/models/{name}", "The model of this name", answers.ModelCard),
    ("/health", "Whether it is", answers.Health),
    ("/version", "Of pagedd", answers.Version),
    ("/metrics", "For Prometheus", None),
)
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_REQUEST_ID = {
    "name": "X-Request-Id",
    "in": "header",
    "description": "The last part of the answer's id",
    "schema": {"type": "string", "pattern": "^[ -~]+$", "minLength": 1, "maxLength": MAX_NAME},
}
_RETRY_AFTER = {"Retry-After": {"description": "In seconds", "schema": {"type": "integer"}}}
_REFUSALS = {
    "400": "A field or a value that is not allowed",
    "401": "No key, or a wrong one",
    "403": "A host or an origin that is not allowed",
    "404": "Another model than the one that is served",
    "408": "The body did not come in time",
    "409": "Somebody cancelled the request",
    "413": "The body is too long",
    "415": "The body is not JSON",
    "422": "The request has not ended within its timeout_s",
    "429": "Too many requests wait",
    "503": "The engine is loading, failed, or the daemon is shutting down",
}


async def document(gateway: Gateway, request: Request) -> Response:
    """``GET /openapi.json``"""
    return json_response(openapi(gateway.get_status().version))


@cache
def openapi(version: str) -> dict[str, Any]:
    """OpenAPI 3.1."""
    structs = {kind for _, _, body, answer, _ in _POSTS for kind in (body, answer)}
    structs |= {kind for _, _, kind in _GETS if kind is not None}
    structs |= {chunk for *_, chunk in _POSTS if chunk is not None}
    ordered = sorted(structs | {answers.ErrorAnswer}, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    paths: dict[str, Any] = {
        path: {"post": _post(summary, body, answer, chunk)}
        for path, summary, body, answer, chunk in _POSTS
    }
    paths |= {path: {"get": _get(summary, answer)} for path, summary, answer in _GETS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pagedd",
            "version": version,
            "summary": "OpenAI's endpoints over a local model, and what operators ask for",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _post(summary: str, body: type, answer: type, chunk: type | None) -> dict[str, Any]:
    content = _json(answer)
    parameters = []
    if chunk is not None:
        content |= {"text/event-stream": {"schema": _event(chunk)}}
        parameters.append(_REQUEST_ID)
    return {
        "summary": summary,
        "parameters": parameters,
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {"200": {"description": "The answer", "content": content}} | _refusals(),
    }


def _get(summary: str, answer: type | None) -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    content = text if answer is None else _json(answer)
    found = {"200": {"description": summary, "content": content}} | _refusals()
    if answer is answers.Health:
        found["503"] = {"description": "Not now, and why", "content": content}
        return {"summary": summary, "responses": found, "security": [{}]}  # it asks for no key
    parameters = [_NAME] if answer is answers.ModelCard else []
    return {"summary": summary, "parameters": parameters, "responses": found}


def _event(chunk: type) -> dict[str, Any]:
    """One event of a stream; the data of the last one is ``[DONE]``."""
    content = {"anyOf": [_ref(chunk), _ref(answers.ErrorAnswer)]}
    part = {"contentMediaType": "application/json", "contentSchema": content}
    data = {"type": "string", "anyOf": [{"const": "[DONE]"}, part]}
    return {"type": "object", "required": ["data"], "properties": {"data": data}}


def _json(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(kind)}}


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


def _refusals() -> dict[str, Any]:
    return {
        status: {"description": meaning, "content": _json(answers.ErrorAnswer)}
        | ({"headers": _RETRY_AFTER} if status in ("429", "503") else {})
        for status, meaning in _REFUSALS.items()
    }
