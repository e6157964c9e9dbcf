"""Questions and commands about requests, most of them those of other connections."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from pagedd.cli.connection import Connection, from_wire
from pagedd.errors import RequestNotFound, Unreachable, UsageError
from pagedd.protocol import (
    MAX_HISTORY,
    Cancel,
    Error,
    Event,
    Explain,
    Explanation,
    Reprioritize,
    ServerFrame,
    Status,
    StatusRequest,
    Subscribe,
    Unsubscribe,
)

ANSWER_TIMEOUT_S = 10.0
AT_ONCE = 32  # explanations that are awaited together; a daemon answers within a step
ENDED = "ended"  # the state of what has ended, but is remembered
_ENDS = ("finished", "failed")
_MARK = "mark"  # the ref of a question whose answer comes after that of the frame before it


def called(word: str) -> str:
    """What to call a request over the wire: 17 and #17 are the daemon's number of it.

    Any other word is what its client calls it. Errors: ``UsageError`` for an empty one.
    """
    if not word:
        raise UsageError("the request's id is empty: pagedd explain lists what is open")
    number = word.removeprefix("#")
    return f"#{int(number)}" if number.isascii() and number.isdecimal() else word


def explanation_of(connection: Connection, word: str) -> Explanation:
    """Errors: ``RequestNotFound``, ``BadRequest`` for a name that several have, and others."""
    name = called(word)
    connection.send(Explain(name))
    while True:
        match _next(connection):
            case Explanation(id=id) as explanation if id == name:
                return explanation
            case Error(ref=ref) as error if ref == name or not isinstance(ref, str):
                raise from_wire(error)
            case _:
                pass


def explanations_of(connection: Connection, names: Sequence[str]) -> list[Explanation]:
    """Of all that are known, in order. Errors: what the daemon answers, but not found."""
    found: dict[str, Explanation] = {}
    for first in range(0, len(names), AT_ONCE):
        asked = set(names[first : first + AT_ONCE])
        for name in asked:
            connection.send(Explain(name))
        while asked:
            match _next(connection):
                case Explanation(id=id) as explanation:
                    found[id] = explanation
                    asked.discard(id)
                case Error(code=RequestNotFound.code, ref=str(ref)):
                    asked.discard(ref)
                case Error() as error:
                    raise from_wire(error)
                case _:
                    pass
    return [found[name] for name in names if name in found]


def number_of(connection: Connection, word: str) -> str:
    """The daemon's number of an open request, as #17. Errors: as ``explanation_of``."""
    name = called(word)
    if name.startswith("#"):
        return name
    explanation = explanation_of(connection, word)
    handles = [each.handle for each in explanation.reasons if isinstance(each.handle, int)]
    if explanation.state == ENDED or not handles:
        raise RequestNotFound(f"the request {word!r} has ended")
    return f"#{handles[0]}"


def tell(connection: Connection, frame: Cancel | Reprioritize) -> None:
    """Have a frame carried out that is answered only when it fails.

    Errors: ``RequestNotFound``, and what else the daemon answers.
    """
    connection.send(frame)
    for _ in _until_mark(connection):
        pass


def past_events(connection: Connection, count: int) -> Iterator[Event]:
    """Subscribe to events, and yield the last ``count`` of those that were; the oldest first.

    A daemon sends a long past in parts; what happens meanwhile comes after it. Errors: what it
    answers.
    """
    began, last, seen = time.time(), 0.0, 0
    connection.send(Subscribe("events", history=count))
    while True:
        before = seen
        for frame in _until_mark(connection):
            if isinstance(frame, Event):
                seen, last = seen + 1, frame.at
                yield frame
        if seen >= count or seen == before or last >= began:
            return


def open_requests(connection: Connection) -> list[str]:
    """The numbers of what has not ended, as far as the daemon remembers; the oldest first."""
    found: set[int] = set()
    for event in past_events(connection, MAX_HISTORY):
        if not isinstance(event.handle, int):
            continue
        if event.kind in _ENDS:
            found.discard(event.handle)
        else:
            found.add(event.handle)
    connection.send(Unsubscribe("events"))
    return [f"#{handle}" for handle in sorted(found)]


def _until_mark(connection: Connection) -> Iterator[ServerFrame]:
    """What comes before the answer to a question that is asked now.

    Errors: an ``error`` frame as its exception.
    """
    connection.send(StatusRequest(_MARK))
    while True:
        answer = _next(connection)
        if isinstance(answer, Error):
            raise from_wire(answer)
        if isinstance(answer, Status) and answer.ref == _MARK:
            return
        yield answer


def _next(connection: Connection) -> ServerFrame:
    """The next frame of a type that is known. Errors: ``Unreachable`` when none comes."""
    until = time.monotonic() + ANSWER_TIMEOUT_S
    while (rest := until - time.monotonic()) > 0:
        if (frame := connection.receive(rest)) is not None:
            return frame
    raise Unreachable(f"the daemon at {connection.url} does not answer")
