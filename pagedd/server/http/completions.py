"""``POST /v1/completions``: texts or token ids go on."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from pagedd.errors import BadRequest
from pagedd.protocol import Choice, Done, Generate
from pagedd.server.edge import check_frame, check_prompt_length
from pagedd.server.http.answers import TextChoice, TextCompletion, Usage
from pagedd.server.http.bodies import CompletionBody
from pagedd.server.http.gateway import Gateway, request_id
from pagedd.server.http.job import Job, carry_out, unless_gone
from pagedd.server.http.logprobs import text_logprobs
from pagedd.server.http.reading import read_into
from pagedd.server.http.refuse import json_response
from pagedd.server.intake import aside, prepare_aside
from pagedd.server.model import Model
from pagedd.server.outbox import Piece

DEFAULT_MAX_TOKENS = 16  # OpenAI's, and vLLM's
# Each prompt is a request of its own, with all parameters: a body must not grow without a limit.
MAX_REPEATED = 4 * 1024 * 1024  # bytes
MAX_ECHO = 64 * 1024 * 1024  # characters of an answer


async def complete(gateway: Gateway, request: Request) -> Response | ASGIApp:
    """Raises PageddError, ClientDisconnect, ClientGone."""

    def make(body: CompletionBody) -> tuple[CompletionBody, str, list[Generate]]:
        id = request_id(request, "cmpl")
        return body, id, _frames(body, id)

    body, id, frames = await read_into(request, CompletionBody, gateway, make)
    model = gateway.admit(body.model)
    for frame in frames:
        check_frame(frame, model.limits)
    echoed = [""] * len(frames)
    if body.echo:
        echoed = await aside(gateway.hub, lambda: [_text(frame, model) for frame in frames])
        _check_echo(echoed, body.n or 1)
    if body.max_tokens == 0:

        async def unchanged() -> TextCompletion:
            return await _unchanged(gateway, model, frames, echoed, id)

        return json_response(await unless_gone(request.receive, unchanged))
    job = Job(gateway.caller(), model, frames, id)
    answer = _Texts(job, body, echoed)
    return await carry_out(job, answer, request.receive, stream=bool(body.stream))


def _frames(body: CompletionBody, id: str) -> list[Generate]:
    if body.best_of not in (None, body.n or 1):
        raise BadRequest("best_of: only as many as n: all choices are returned")
    if body.echo and body.logprobs is not None:
        raise BadRequest("echo: not with logprobs: the prompt's are not computed")
    if body.max_tokens == 0 and (not body.echo or body.stream):
        raise BadRequest("max_tokens: must be at least 1, or 0 with echo and without stream")
    longest = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    params, prompts = body.params(longest or 1, body.logprobs), body.prompts()
    size = len(msgspec.json.encode(params))
    if len(prompts) > 1 and len(prompts) * size > MAX_REPEATED:
        raise BadRequest(
            f"prompt: {len(prompts)} prompts, each with parameters of {size} bytes, the limit is "
            f"{MAX_REPEATED} bytes in all"
        )
    return [
        body.frame(id, params, prompt=prompt)
        if isinstance(prompt, str)
        else body.frame(id, params, prompt_tokens=prompt)
        for prompt in prompts
    ]


def _text(frame: Generate, model: Model) -> str:
    """What comes before the answer."""
    if frame.prompt_tokens is not None:
        return model.text.decode(frame.prompt_tokens, skip_special=False)
    return frame.prompt or ""


def _check_echo(echoed: list[str], n: int) -> None:
    """Raises BadRequest."""
    size = n * sum(map(len, echoed))
    if size > MAX_ECHO:
        raise BadRequest(
            f"echo: {n} times the prompts are {size} characters, the limit is {MAX_ECHO}"
        )


async def _unchanged(
    gateway: Gateway, model: Model, frames: list[Generate], echoed: list[str], id: str
) -> TextCompletion:
    """The prompts alone, with nothing generated."""
    job = Job(gateway.caller(), model, frames, id)
    count = 0
    for frame in frames:
        tokens = frame.prompt_tokens or (await prepare_aside(gateway.hub, frame, model)).tokens
        check_prompt_length(len(tokens), model.limits)
        count += len(tokens)
    n = frames[0].params.n
    choices = [
        TextChoice(at * n + choice, text, finish_reason="length")
        for at, text in enumerate(echoed)
        for choice in range(n)
    ]
    usage = Usage.of(count, 0, 0)
    return TextCompletion(id, job.created, model.ready.model, choices, usage=usage)


class _Texts:
    """Implements ``job.Writer``. Choices are numbered prompt by prompt."""

    def __init__(self, job: Job, body: CompletionBody, echoed: list[str]) -> None:
        self._job = job
        self._n = body.n or 1
        self._echoed = echoed
        options = body.stream_options
        self._usage_at_end = options is not None and bool(options.include_usage)
        self._usage_always = options is not None and bool(options.continuous_usage_stats)
        self._with_logprobs = body.logprobs is not None
        self._begun: set[int] = set()
        self._offsets: dict[int, int] = {}

    def piece(self, prompt: int, piece: Piece) -> Iterable[Struct]:
        """New text of a choice; the first one has the echo before it."""
        index = prompt * self._n + piece.index
        text = piece.text
        if index not in self._begun:
            self._begun.add(index)
            text = self._echoed[prompt] + text
        logprobs = None
        if self._with_logprobs:
            offset = self._offsets.get(index, 0)
            logprobs = text_logprobs(piece.logprobs or [], offset)
            self._offsets[index] = offset + sum(map(len, logprobs.tokens))
        finish = piece.finish_reason or None
        if text or finish or self._with_logprobs:
            stop = None if piece.stop_reason is UNSET else piece.stop_reason
            yield self._chunk([TextChoice(index, text, logprobs, finish, stop)])

    def end(self, usage: Usage) -> Iterable[Struct]:
        """Usage, if it was asked for."""
        if self._usage_at_end:
            job = self._job
            yield TextCompletion(job.id, job.created, job.model.ready.model, [], usage=usage)

    def whole(self, results: list[Done]) -> TextCompletion:
        """All choices at once."""
        job = self._job
        choices = [
            self._choice(prompt, choice)
            for prompt, done in enumerate(results)
            for choice in sorted(done.choices, key=lambda each: each.index)
        ]
        return TextCompletion(job.id, job.created, job.model.ready.model, choices, usage=job.usage)

    def _choice(self, prompt: int, choice: Choice) -> TextChoice:
        logprobs = None
        if self._with_logprobs:
            logprobs = text_logprobs(choice.logprobs or [], 0)
        return TextChoice(
            prompt * self._n + choice.index,
            self._echoed[prompt] + (choice.text or ""),
            logprobs,
            choice.finish_reason,
            None if choice.stop_reason is UNSET else choice.stop_reason,
        )

    def _chunk(self, choices: list[TextChoice]) -> TextCompletion:
        job = self._job
        usage = job.usage if self._usage_always else UNSET
        return TextCompletion(job.id, job.created, job.model.ready.model, choices, usage=usage)
