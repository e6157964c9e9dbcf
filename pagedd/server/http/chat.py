"""``POST /v1/chat/completions``: messages in, the assistant's turn out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
from msgspec import UNSET, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from pagedd.errors import BadRequest, PageddError
from pagedd.protocol import Done, FunctionCall, Generate, Message, Tool, ToolCall
from pagedd.server.edge import check_frame, check_tools
from pagedd.server.http.answers import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    Usage,
)
from pagedd.server.http.bodies import CallInHistory, ChatBody, ChatMessage, NamedTool, unset
from pagedd.server.http.gateway import Gateway, request_id
from pagedd.server.http.job import Job, carry_out
from pagedd.server.http.logprobs import chat_logprobs
from pagedd.server.http.reading import read_into
from pagedd.server.http.turn import Turn
from pagedd.server.intake import aside
from pagedd.server.outbox import Piece
from pagedd.server.structure import has_grammar
from pagedd.text.tool_grammar import tool_grammar


async def chat(gateway: Gateway, request: Request) -> Response | ASGIApp:
    """Raises PageddError, ClientDisconnect, ClientGone."""

    def make(body: ChatBody) -> tuple[ChatBody, Generate]:
        return body, _frame(body, request_id(request, "chatcmpl"))

    body, frame = await read_into(request, ChatBody, gateway, make)
    if _must_call(body):  # tools of some kilobytes make a grammar that takes long to write
        frame = await aside(gateway.hub, partial(_calling, frame, body), "frame")
    model = gateway.admit(body.model)
    check_frame(frame, model.limits)  # before anything is made for each of n choices

    def retell(error: PageddError) -> PageddError:
        return _of_tools(error, body)

    job = Job(gateway.caller(), model, [frame], frame.id, retell)
    answer = _Chat(job, body)
    try:
        return await carry_out(job, answer, request.receive, stream=bool(body.stream))
    except BadRequest as error:
        raise retell(error) from None


def messages_of(body: Iterable[ChatMessage]) -> list[Message]:
    """As the protocol has them. Raises BadRequest."""
    return [_message(message, f"messages[{at}]") for at, message in enumerate(body)]


def _frame(body: ChatBody, id: str) -> Generate:
    messages, tools = messages_of(body.messages), _tools(body)
    params = body.chat_params()
    if _must_call(body) and has_grammar(params):
        raise BadRequest("tool_choice: not with another form for the answer (response_format)")
    return body.frame(id, params, messages=messages, tools=tools)


def _tools(body: ChatBody) -> list[Tool] | None:
    """Those that the model is shown. Raises BadRequest for a choice that cannot be made."""
    choice, tools = body.tool_choice, body.tools or []
    check_tools(tools)
    if choice in ("required", "auto") and not tools:
        raise BadRequest(f"tool_choice: {choice!r} needs tools")
    if isinstance(choice, NamedTool) and all(
        tool.function.name != choice.function.name for tool in tools
    ):
        raise BadRequest(f"tool_choice: there is no function {choice.function.name!r} in tools")
    return None if choice == "none" or not tools else list(tools)


def _must_call(body: ChatBody) -> bool:
    return body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool)


def _calling(frame: Generate, body: ChatBody) -> Generate:
    """Where a call must come, nothing else can be written."""
    choice = body.tool_choice
    only = choice.function.name if isinstance(choice, NamedTool) else None
    grammar = tool_grammar(body.tools or [], only, parallel=body.parallel_tool_calls is not False)
    params = msgspec.structs.replace(frame.params, guided_grammar=grammar)
    return msgspec.structs.replace(frame, params=params)


def _of_tools(error: PageddError, body: ChatBody) -> PageddError:
    """Nobody wrote the grammar of calls that must come: what is wrong with it is in the tools."""
    field = "params.guided_grammar: "
    if body.guided_grammar is not None or not error.message.startswith(field):
        return error
    return BadRequest(f"tools: {error.message.removeprefix(field)}")


def _message(message: ChatMessage, field: str) -> Message:
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    calls = None
    if message.tool_calls:
        calls = [
            _call(call, f"{field}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls)
        ]
    return Message(
        message.role, content, unset(message.name), unset(calls), unset(message.tool_call_id)
    )


def _call(call: CallInHistory, field: str) -> ToolCall:
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise BadRequest(f"{field}.function.arguments: expected an object as JSON") from None
    return ToolCall(FunctionCall(call.function.name, arguments), call.id)


class _Chat:
    """Implements ``job.Writer``."""

    def __init__(self, job: Job, body: ChatBody) -> None:
        self._job = job
        options = body.stream_options
        self._usage_at_end = options is not None and bool(options.include_usage)
        self._usage_always = options is not None and bool(options.continuous_usage_stats)
        self._with_logprobs = bool(body.logprobs)
        calls = body.tools is not None and body.tool_choice != "none"
        self._turns = [
            Turn(calls=calls, one_call=body.parallel_tool_calls is False)
            for _ in range(body.n or 1)
        ]
        self._begun: set[int] = set()

    def piece(self, prompt: int, piece: Piece) -> Iterable[Struct]:
        """New text of a choice; its role comes first."""
        index = piece.index
        if index not in self._begun:
            self._begun.add(index)
            yield self._chunk(ChatChunkChoice(index, ChatDelta("assistant", "")))
        ends, reason = piece.finish_reason is not UNSET, piece.finish_reason or ""
        deltas = self._turns[index].deltas(piece.text, ends=ends, reason=reason)
        logprobs = None
        if self._with_logprobs and piece.logprobs is not None:
            logprobs = chat_logprobs(piece.logprobs, self._job.model.text)
            deltas = deltas or [ChatDelta(content="")]
        for delta in deltas:
            yield self._chunk(ChatChunkChoice(index, delta, logprobs))
            logprobs = None
        if piece.finish_reason is not UNSET:
            finish = self._turns[index].finish_reason(piece.finish_reason)
            stop = None if piece.stop_reason is UNSET else piece.stop_reason
            yield self._chunk(ChatChunkChoice(index, ChatDelta(), None, finish, stop))

    def end(self, usage: Usage) -> Iterable[Struct]:
        """Usage, if it was asked for."""
        if self._usage_at_end:
            job = self._job
            yield ChatChunk(job.id, job.created, job.model.ready.model, [], usage=usage)

    def whole(self, results: list[Done]) -> ChatCompletion:
        """All choices of the only prompt at once."""
        (done,) = results
        job, choices = self._job, []
        for choice in sorted(done.choices, key=lambda each: each.index):
            turn = self._turns[choice.index]
            message = turn.message(choice.text or "", choice.finish_reason)
            logprobs = None
            if self._with_logprobs:
                logprobs = chat_logprobs(choice.logprobs or [], job.model.text)
            finish = turn.finish_reason(choice.finish_reason)
            stop = None if choice.stop_reason is UNSET else choice.stop_reason
            choices.append(ChatChoice(choice.index, message, logprobs, finish, stop))
        return ChatCompletion(job.id, job.created, job.model.ready.model, choices, job.usage)

    def _chunk(self, choice: ChatChunkChoice) -> ChatChunk:
        job = self._job
        usage = job.usage if self._usage_always else UNSET
        return ChatChunk(job.id, job.created, job.model.ready.model, [choice], usage=usage)
