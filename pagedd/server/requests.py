"""One open request: events of the engine in, frames of the protocol out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Protocol

import anyio
from msgspec import UNSET, Struct

from pagedd.core import events
from pagedd.core.plan import TokenLogprobs
from pagedd.core.request import Request
from pagedd.errors import PageddError
from pagedd.protocol import (
    Accepted,
    Done,
    Error,
    Generate,
    Logprob,
    Preempted,
    Resumed,
    Started,
    TopLogprob,
    Usage,
)
from pagedd.server.choices import ChoiceSoFar
from pagedd.server.edge import stop_strings
from pagedd.server.journal import Who
from pagedd.server.outbox import Piece
from pagedd.server.past import RESTARTED, Past
from pagedd.server.replies import error_frame
from pagedd.server.structure import has_grammar
from pagedd.text.stops import prepared
from pagedd.text.stream import ChoiceText
from pagedd.text.tokenizer import TextModel

TAIL = 400  # characters


class Frames(Protocol):
    """Where a request's frames go; ``Outbox`` is one."""

    def put(self, frame: Struct, handle: int | None = None) -> None:
        """Queue a frame; it stays behind the pieces of ``handle`` that are queued already."""

    def put_piece(self, id: str, handle: int, seq: Iterator[int], piece: Piece) -> None:
        """Queue what a step adds to one choice."""


class Client(Protocol):
    """Who asked. ``connection`` is a number of its own."""

    connection: int

    @property
    def outbox(self) -> Frames:
        """Gets the frames of its requests."""

    def ended(self, request: OpenRequest) -> None:
        """Called once, before the last frame is put."""

    def withdraw(self, preparing: Preparing, error: PageddError | None = None) -> None:
        """End what the engine does not know yet: it was cancelled, or has failed with ``error``."""


class Preparing:
    """A request whose prompt is being tokenised, or waits for that."""

    def __init__(self, handle: int, frame: Generate, client: Client) -> None:
        self.handle = handle
        self.frame = frame
        self.client = client
        self.scope = anyio.CancelScope()  # of the wait for its tokens
        self.arrived = time.monotonic()

    @property
    def id(self) -> str:
        """The client's name for it."""
        return self.frame.id

    @property
    def withdrawn(self) -> bool:
        """It was cancelled; only the worker thread does not know."""
        return self.scope.cancel_called

    @property
    def who(self) -> Who:
        """Its name for the records."""
        return _who(self.frame, self.client, 0)


class OpenRequest:
    """Known by ``handle`` to the engine, by ``id`` to its client.

    It ends with exactly one ``done`` (``finished``) or ``error`` (``fail``); what comes for its
    handle afterwards never reaches it, because the hub has forgotten it.

    ``core`` is what the engine gets, also a second time when it dies early enough: see ``held``.
    ``arrived``: on the monotonic clock.
    """

    def __init__(
        self,
        handle: int,
        frame: Generate,
        text: TextModel,
        core: Request,
        client: Client,
        arrived: float | None = None,
    ) -> None:
        self.handle = handle
        self.id = frame.id
        self.core = core
        self._made = time.monotonic()
        self.arrived = self._made if arrived is None else arrived
        self.timeout_s = frame.timeout_s
        self.params = frame.params
        self.cancelling = False  # the engine was told so
        self.past = Past()
        self.who = _who(frame, client, len(core.prompt))
        self._client = client
        self._text = text
        self._frame = frame
        self._prompt_tokens = len(core.prompt)
        self._with_logprobs = frame.params.logprobs is not None
        self._ended = False
        self._seq: Iterator[int] = itertools.count(1)
        self._choices = self._no_choices()

    @property
    def begun(self) -> bool:
        """Its client has tokens of it, so that it cannot begin anew."""
        return self._frame.stream and any(choice.num_tokens for choice in self._choices)

    @property
    def finish_reasons(self) -> list[str | None]:
        """Of each choice; None: it has not ended."""
        return [choice.finish_reason or None for choice in self._choices]

    @property
    def token_counts(self) -> list[int]:
        """Of each choice, what its client got."""
        return [choice.num_tokens for choice in self._choices]

    def begin_anew(self) -> None:
        """Another engine gets it; whatever the one before it drew, nobody has seen it."""
        self.past.lost((time.monotonic() - self._made) * 1e3)
        self._choices = self._no_choices()

    def accepted(self, event: events.Accepted) -> None:
        """It waits in the queue."""
        if not self.past.accepted:
            self.past.accepted = True
            self._put(Accepted(self.id, event.queue_position, self._prompt_tokens))

    def started(self, event: events.Started) -> None:
        """Its first chunk is computed."""
        past = self.past
        if not past.started:
            past.started = True
            self._put(Started(self.id, event.cached_tokens, past.queued_ms + event.queued_ms))
        while past.away:
            past.away -= 1
            self._put(Resumed(self.id, "recompute", RESTARTED, event.pages))

    def preempted(self, event: events.Preempted, reason: str) -> None:
        """A sequence of it gave way."""
        self.past.away += 1
        self.past.preemptions += 1
        self._put(Preempted(self.id, event.mode, reason, event.pages))

    def resumed(self, event: events.Resumed, reason: str) -> None:
        """A sequence of it goes on."""
        self.past.away -= 1
        self._put(Resumed(self.id, event.mode, reason, event.pages))

    def token(self, event: events.Token) -> bool:
        """A token of one choice. True when a stop string ends the choice and the engine must know.

        Tokens that the engine drew before it knew that are not the client's.
        """
        choice = self._choices[event.choice]
        if choice.finish_reason is not UNSET:
            return False
        choice.num_tokens += 1
        ends = event.finish == "stop"
        found = choice.text.push(event.token, end=ends, explicit=event.stop is not None)
        text, stop = found.text, found.stop
        if event.finish is not None and stop is None:
            rest = choice.text.finish()
            text, stop = text + rest.text, rest.stop
        if stop is not None:
            choice.finish_reason, choice.stop_reason = "stop", stop
        elif event.finish is not None:
            choice.finish_reason = event.finish
            choice.stop_reason = UNSET if event.stop is None else event.stop
        logprobs = None
        if self._with_logprobs and event.logprobs is not None:
            logprobs = [self._logprob(event.token, event.logprobs)]
        self._emit(choice, event.choice, text, [event.token], logprobs)
        return stop is not None and event.finish is None

    def said(self, index: int) -> str:
        """The end of what a choice has said so far."""
        return self._choices[index].tail

    def finished(self, event: events.Finished) -> None:
        """All choices have ended, or it was cancelled."""
        for index, choice in enumerate(self._choices):
            if choice.finish_reason is UNSET:
                choice.finish_reason = "cancelled"
                self._emit(choice, index, choice.text.finish().text, [], None)
        if self._ended:
            return  # the outbox was full already, and the client has been told so
        usage = Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=sum(choice.num_tokens for choice in self._choices),
            cached_tokens=event.cached_tokens,
        )
        choices = [choice.result(index) for index, choice in enumerate(self._choices)]
        self._end(Done(self.id, choices, usage, self.past.ledger(event.ledger)))

    def fail(self, error: PageddError) -> None:
        """It ends with an error."""
        self._end(error_frame(error, id=self.id))

    def _end(self, frame: Done | Error) -> None:
        """One terminal frame, whatever it leads to: putting it may find the outbox full."""
        if not self._ended:
            self._ended = True
            self._client.ended(self)
            self._put(frame)

    def _no_choices(self) -> list[ChoiceSoFar]:
        frame, params = self._frame, self._frame.params
        stops = prepared(stop_strings(params))
        return [
            ChoiceSoFar(
                ChoiceText(
                    # a form is kept to from the first blank on
                    self._text.detokenizer(
                        skip_special=params.skip_special_tokens, whole=has_grammar(params)
                    ),
                    stops,
                    include_stop=params.include_stop_str_in_output,
                    min_tokens=params.min_tokens,
                ),
                keep=not frame.stream,
                with_logprobs=self._with_logprobs,
            )
            for _ in range(params.n)
        ]

    def _put(self, frame: Struct) -> None:
        self._client.outbox.put(frame, self.handle)

    def _emit(
        self,
        choice: ChoiceSoFar,
        index: int,
        text: str,
        tokens: list[int],
        logprobs: list[Logprob] | None,
    ) -> None:
        choice.tail = (choice.tail + text)[-TAIL:]
        piece = Piece(index, text, tokens, logprobs, choice.finish_reason, choice.stop_reason)
        if not choice.keep(piece):
            self._client.outbox.put_piece(self.id, self.handle, self._seq, piece)

    def _logprob(self, token: int, entry: TokenLogprobs) -> Logprob:
        text = self._text
        return Logprob(
            id=token,
            token=text.token_text(token),
            bytes=text.token_bytes(token),
            logprob=entry.logprob,
            top=[
                TopLogprob(other.token, text.token_text(other.token), other.logprob)
                for other in entry.top
            ],
        )


def _who(frame: Generate, client: Client, prompt_tokens: int) -> Who:
    return Who(frame.id, client.connection, prompt_tokens, frame.priority, frame.params.n)
