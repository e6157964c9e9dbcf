"""``explain``: whom a question is about, what the engine is asked, and who gets the answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from pagedd.core.events import Explained, Table
from pagedd.engine.messages import Explain
from pagedd.errors import BadRequest, PageddError, QueueFull, RequestNotFound
from pagedd.protocol import Explanation, PageTable
from pagedd.server.directory import Directory, handle_in
from pagedd.server.held import Held
from pagedd.server.journal import Journal, Told
from pagedd.server.records import held, preparing, record_of
from pagedd.server.replies import error_frame
from pagedd.server.requests import Client, Frames, OpenRequest, Preparing

MAX_QUESTIONS = 64  # of one connection that wait for the engine
MAX_NAMED = 8  # handles that a refusal lists


@dataclass(frozen=True, slots=True)
class _Question:
    """``id``: how the asker called the request, and so how the answer calls it."""

    id: str
    handle: int
    asker: Frames


class Inquiries:
    """Owns the questions that the engine has not answered. An answer goes to its asker alone.

    ``send`` tells the engine; it raises EngineFailed. ``clock``: seconds since 1970.
    """

    def __init__(
        self,
        directory: Directory,
        journal: Journal,
        without_engine: Held,
        send: Callable[[Explain], None],
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._held = without_engine
        self._send = send
        self._clock = clock
        self._refs = itertools.count(1)
        self._questions: dict[int, _Question] = {}

    def ask(self, id: str, asker: Client, own: OpenRequest | Preparing | None) -> None:
        """Answer, now or when the engine has. ``own``: the asker's open request with this id.

        Otherwise ``id`` is a handle, or names a request that ended on the asker's connection, one
        that is open on another, or one that ended there. Raises RequestNotFound, BadRequest when
        several are meant, QueueFull, EngineFailed.
        """
        if own is not None:
            self._ask_about(id, own, asker.outbox)
        elif (handle := handle_in(id)) is not None:
            self._ask_by_handle(id, handle, asker.outbox)
        elif (ended := self._journal.ended(id, asker.connection)) is not None:
            self._tell_ended(id, ended, asker.outbox)
        else:
            self._ask_elsewhere(id, asker.outbox)

    def answer(self, event: Explained) -> None:
        """The engine's answer. It may have ended the request before the question came."""
        question = self._questions.pop(event.ref, None)
        if question is None:
            return  # who asked is gone
        if not event.state:
            try:
                self._tell_ended(question.id, question.handle, question.asker)
            except RequestNotFound as error:
                question.asker.put(error_frame(error, ref=question.id))
            return
        now, journal = self._clock(), self._journal
        entries = journal.of(event.handle)
        present: list[Told] = [*event.waiting, *event.running]
        entries += [journal.entry(each, now) for each in present]
        eta = UNSET if event.eta_ms is None else event.eta_ms
        records = [record_of(entry) for entry in entries]
        tables = [_table(each) for each in event.tables]
        request = self._directory.by_handle(event.handle)
        said = request.said if isinstance(request, OpenRequest) else None
        text = UNSET if said is None else [said(each.index) for each in tables]
        question.asker.put(Explanation(question.id, event.state, records, eta, tables, text))

    def forget(self, asker: Frames) -> None:
        """The asker is gone."""
        self._questions = {
            ref: question
            for ref, question in self._questions.items()
            if question.asker is not asker
        }

    def fail_all(self, error: PageddError) -> None:
        """The engine cannot answer any more."""
        questions, self._questions = self._questions, {}
        for question in questions.values():
            question.asker.put(error_frame(error, ref=question.id))

    def _ask_by_handle(self, id: str, handle: int, asker: Frames) -> None:
        request = self._directory.by_handle(handle)
        if request is None:
            self._tell_ended(id, handle, asker)
        else:
            self._ask_about(id, request, asker)

    def _ask_elsewhere(self, id: str, asker: Frames) -> None:
        found = self._directory.by_id(id)
        if len(found) == 1:
            self._ask_about(id, found[0], asker)
            return
        if found:
            shown = ", ".join(f"#{request.handle}" for request in found[:MAX_NAMED])
            more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
            raise BadRequest(
                f"id: {id!r} is open on {len(found)} connections; name one by its handle: "
                f"{shown}{more}"
            )
        ended = self._journal.ended(id)
        if ended is None:
            raise _not_found(id)
        self._tell_ended(id, ended, asker)

    def _ask_about(self, id: str, request: OpenRequest | Preparing, asker: Frames) -> None:
        waits = preparing if isinstance(request, Preparing) else held
        if waits is preparing or request.handle in self._held:
            record = waits(request.handle, request.who, self._clock())
            asker.put(Explanation(id, "waiting", [record]))
            return
        if sum(1 for each in self._questions.values() if each.asker is asker) >= MAX_QUESTIONS:
            raise QueueFull(f"{MAX_QUESTIONS} explanations are awaited on this connection already")
        ref = next(self._refs)
        self._send(Explain(request.handle, ref))
        self._questions[ref] = _Question(id, request.handle, asker)

    def _tell_ended(self, id: str, handle: int, asker: Frames) -> None:
        records = [record_of(entry) for entry in self._journal.of(handle)]
        if not records:
            raise _not_found(id)
        asker.put(Explanation(id, "ended", records))


def _table(table: Table) -> PageTable:
    pages, refs, host = list(table.pages), list(table.refs), list(table.host)
    return PageTable(table.choice, pages, refs, host, table.host_start)


def _not_found(id: str) -> RequestNotFound:
    return RequestNotFound(f"no request {id!r} is open, and none that ended lately is remembered")
