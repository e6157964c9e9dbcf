"""From a ``generate`` frame to the engine, whatever edge it came by: tokens, checks, submission."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

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


def tokenise(frame: Generate, model: Model) -> list[int]:
    """In a worker thread; the answer's form is checked there too.

    Raises PromptTooLong, or BadRequest when the template refuses, or the form can be no grammar.
    """
    check_grammar(frame.params)
    if frame.prompt_tokens is not None:
        return frame.prompt_tokens
    longest = model.limits.max_prompt_tokens
    if frame.prompt is not None:
        return model.text.encode_bounded(frame.prompt, longest)
    return model.text.encode_chat(
        for_template(frame.messages or ()), longest, tools=for_template(frame.tools or ()) or None
    )


def ready_tokens(frame: Generate) -> list[int] | None:
    """The prompt's tokens, where ``tokenise`` would have nothing to do."""
    return None if has_grammar(frame.params) else frame.prompt_tokens


async def tokenise_aside(hub: Hub, frame: Generate, model: Model) -> list[int]:
    """As ``tokenise``, in one of the few threads for that."""
    return await aside(hub, partial(tokenise, frame, model))


async def aside(hub: Hub, work: Callable[[], T], kind: Kind = "prompt") -> T:
    """Work with text that the event loop has no time for."""
    return await hub.text_work.run(work, kind)


def submit(
    hub: Hub,
    client: Client,
    handle: int,
    frame: Generate,
    model: Model,
    tokens: list[int],
    arrived: float | None = None,
) -> OpenRequest:
    """Hand a request to the engine. ``frame`` has passed ``check_frame``.

    ``arrived``: when, on the monotonic clock; None: now.
    Raises PromptTooLong, BadRequest or ShuttingDown.
    """
    check_prompt_length(len(tokens), model.limits)
    params = core_params(frame.params, len(tokens), model.limits)
    core = Request(
        handle,
        tuple(tokens),
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
