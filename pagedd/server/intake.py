"""From a ``generate`` frame to the engine, whatever edge it came by: tokens, checks, submission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from pagedd.core.request import Request
from pagedd.protocol import Generate, Message, Tool
from pagedd.server.edge import check_prompt_length, core_params
from pagedd.server.hub import Hub
from pagedd.server.model import Model
from pagedd.server.requests import Client, OpenRequest
from pagedd.server.structure import check_grammar, has_grammar
from pagedd.server.text_work import Kind

T = TypeVar("T")


class Prompt(NamedTuple):
    """What takes long to make of a request: the tokens, and the grammar of its answer."""

    tokens: list[int]
    grammar: str | None


def prepared(frame: Generate, model: Model, like: Prompt | None = None) -> Prompt:
    """In a worker thread; the answer's form is checked there too.

    ``like``: what was made of a frame with the same parameters.
    Raises PromptTooLong, or BadRequest when the template refuses, or the form can be no grammar.
    """
    grammar = check_grammar(frame.params) if like is None else like.grammar
    return Prompt(_tokens(frame, model), grammar)


def _tokens(frame: Generate, model: Model) -> list[int]:
    if frame.prompt_tokens is not None:
        return frame.prompt_tokens
    longest = model.limits.max_prompt_tokens
    if frame.prompt is not None:
        return model.text.encode_bounded(frame.prompt, longest)
    return model.text.encode_chat(
        for_template(frame.messages or ()), longest, tools=for_template(frame.tools or ()) or None
    )


def ready(frame: Generate) -> Prompt | None:
    """What ``prepared`` gives, where it would have nothing to do."""
    if frame.prompt_tokens is None or has_grammar(frame.params):
        return None
    return Prompt(frame.prompt_tokens, None)


async def prepare_aside(
    hub: Hub, frame: Generate, model: Model, like: Prompt | None = None
) -> Prompt:
    """As ``prepared``, in one of the few threads for that."""
    return await aside(hub, partial(prepared, frame, model, like))


async def aside(hub: Hub, work: Callable[[], T], kind: Kind = "prompt") -> T:
    """Work with text that the event loop has no time for."""
    return await hub.text_work.run(work, kind)


def submit(
    hub: Hub,
    client: Client,
    handle: int,
    frame: Generate,
    model: Model,
    prompt: Prompt,
    arrived: float | None = None,
) -> OpenRequest:
    """Hand a request to the engine. ``frame`` has passed ``check_frame``.

    ``arrived``: when, on the monotonic clock; None: now.
    Raises PromptTooLong, BadRequest or ShuttingDown.
    """
    check_prompt_length(len(prompt.tokens), model.limits)
    params = core_params(frame.params, len(prompt.tokens), model.limits, prompt.grammar)
    core = Request(
        handle,
        tuple(prompt.tokens),
        params,
        frame.priority,
        salt=(frame.cache_salt or "").encode(),
        client=_account(frame, client),
    )
    request = OpenRequest(handle, frame, model.text, core, client, arrived)
    hub.submit(request)
    return request


def _account(frame: Generate, client: Client) -> str:
    """Whom --fair-share counts the tokens for; none can be taken for another kind."""
    if frame.user:
        return f"user {frame.user}"
    return f"salt {frame.cache_salt}" if frame.cache_salt else f"#{client.connection}"


def for_template(structs: Sequence[Message | Tool]) -> list[dict[str, Any]]:
    """As templates know them: what was not given is not there, and a missing text is empty."""
    return [
        {key: "" if value is None else value for key, value in msgspec.to_builtins(each).items()}
        for each in structs
    ]
