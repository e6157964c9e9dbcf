"""The small endpoints: models, tokens, health, version, metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pagedd.errors import BadRequest
from pagedd.server.edge import check_ids, check_tools
from pagedd.server.http.answers import Health, ModelCard, ModelList, Text, Tokens, Version
from pagedd.server.http.bodies import DetokenizeBody, TokenizeBody
from pagedd.server.http.chat import messages_of
from pagedd.server.http.gateway import Gateway
from pagedd.server.http.reading import read
from pagedd.server.http.refuse import json_response
from pagedd.server.intake import aside, for_template
from pagedd.server.model import Model

MOST_COUNTED = 1_000_000  # tokens of a text that is only counted: a second or two of a core
MOST_CHARACTERS = 4 * MOST_COUNTED  # what has no blanks is read as a whole, and costs by its length


async def models(gateway: Gateway, request: Request) -> Response:
    """``GET /v1/models``. Raises PageddError while there is none."""
    model = gateway.admit(None)
    return json_response(ModelList([_card(gateway, model)]))


async def model(gateway: Gateway, request: Request) -> Response:
    """``GET /v1/models/{name}``. Raises ModelNotFound."""
    return json_response(_card(gateway, gateway.admit(request.path_params["name"])))


async def tokenize(gateway: Gateway, request: Request) -> Response:
    """``POST /tokenize``. Raises PageddError."""
    body = await read(request, TokenizeBody, gateway)
    model = gateway.admit(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise BadRequest("prompt: give exactly one of prompt and messages")
    check_tools(body.tools or ())
    return json_response(await aside(gateway.hub, lambda: _counted(body, model), "count"))


def _counted(body: TokenizeBody, model: Model) -> Tokens:
    tokens, limit = _tokens(body, model), model.limits.max_model_len
    if not body.return_token_strs:
        return Tokens(tokens, len(tokens), limit)
    return Tokens(tokens, len(tokens), limit, [model.text.token_text(each) for each in tokens])


def _tokens(body: TokenizeBody, model: Model) -> list[int]:
    longest = max(model.limits.max_model_len, MOST_COUNTED)
    if body.prompt is not None:
        if len(body.prompt) > MOST_CHARACTERS:
            raise BadRequest(
                f"prompt: it has {len(body.prompt)} characters, the limit is {MOST_CHARACTERS}"
            )
        add_bos = None if body.add_special_tokens else False
        return model.text.encode_bounded(body.prompt, longest, add_bos=add_bos)
    return model.text.encode_chat(
        for_template(messages_of(body.messages or ())),
        longest,
        tools=for_template(body.tools or ()) or None,
        add_generation_prompt=body.add_generation_prompt,
    )


async def detokenize(gateway: Gateway, request: Request) -> Response:
    """``POST /detokenize``. Raises PageddError."""
    body = await read(request, DetokenizeBody, gateway)
    model = gateway.admit(body.model)
    check_ids("tokens", body.tokens, model.limits.vocab_size)
    text = await aside(
        gateway.hub, lambda: model.text.decode(body.tokens, skip_special=False), "count"
    )
    return json_response(Text(text))


async def health(gateway: Gateway, request: Request) -> Response:
    """``GET /health``: 200 only while the engine's loop moves, or has nothing to do."""
    status = gateway.get_status()
    reason = status.reason if isinstance(status.reason, str) else None
    body = Health(status.state) if reason is None else Health(status.state, reason)
    return json_response(body, 200 if status.state == "ready" else 503)


async def server_version(gateway: Gateway, request: Request) -> Response:
    """``GET /version``"""
    return json_response(Version(gateway.get_status().version))


async def metrics(gateway: Gateway, request: Request) -> Response:
    """``GET /metrics``, in the text format that the client asks for."""
    body, media_type = gateway.hub.metrics.render(request.headers.get("accept"))
    return Response(body, headers={"Content-Type": media_type})


def _card(gateway: Gateway, model: Model) -> ModelCard:
    return ModelCard(model.ready.model, gateway.began, model.limits.max_model_len)
