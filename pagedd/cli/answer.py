"""One request and its answer, streamed: shared by ``generate`` and ``chat``."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pagedd import protocol
from pagedd.cli.connection import Connection, from_wire
from pagedd.cli.interrupt import Interrupts
from pagedd.cli.terminal import Notice, check_reader
from pagedd.core.wording import counted

# Between two looks at Ctrl-C and at who reads. Frames wake the loop at once.
LOOK_S = 0.1
CANCEL_PATIENCE_S = 1.0


@dataclass(slots=True)
class Answer:
    """What came back. ``done`` is None when the daemon did not confirm a cancel in time."""

    text: str = ""
    done: protocol.Done | None = None
    interrupted: bool = False
    first_token_s: float | None = None
    seconds: float = 0.0
    parts: list[str] = field(default_factory=list)


def ask(
    connection: Connection,
    request: protocol.Generate,
    interrupts: Interrupts,
    show: Callable[[str], None],
) -> Answer:
    """Send ``request``, hand each piece of text to ``show``, and wait for the end.

    Ctrl-C cancels the request on the daemon and returns soon after, a second one at once.
    Errors: those of the daemon as exceptions; whatever ``show`` raises, after a cancel, and
    ``BrokenPipeError`` when who reads standard output has left, even if nothing comes to be shown.
    """
    answer, notice, began = Answer(), Notice(), time.monotonic()
    prompt_tokens = 0
    try:
        for frame in _frames(connection, request, interrupts):
            match frame:
                case protocol.Accepted(queue_position=ahead, prompt_tokens=prompt_tokens):
                    notice.show(f"waiting, {ahead} before you" if ahead else "waiting")
                case protocol.Started():
                    notice.show(f"reading {counted(prompt_tokens, 'token')}")
                case protocol.Preempted(reason=reason):
                    if not answer.parts:
                        notice.show(f"waiting again: {_without_name(reason, request.id)}")
                case protocol.Resumed():
                    if not answer.parts:
                        notice.show(f"reading {counted(prompt_tokens, 'token')}")
                case protocol.Delta(text=text):
                    notice.clear()
                    if answer.first_token_s is None:
                        answer.first_token_s = time.monotonic() - began
                    answer.parts.append(text)
                    if interrupts.count == 0:
                        show(text)
                case protocol.Done():
                    answer.done = frame
                case protocol.Error():
                    raise from_wire(frame)
                case _:
                    pass
    except OSError:
        connection.send(protocol.Cancel(request.id))
        raise
    finally:
        notice.clear()
    answer.interrupted = interrupts.count > 0
    answer.text = "".join(answer.parts)
    answer.seconds = time.monotonic() - began
    return answer


def _without_name(reason: str, name: str) -> str:
    """A sentence about the request ``name``, which the person knows: less its subject."""
    return re.sub(rf"^{re.escape(name)} \(#\d+\) ", "", reason)


def _frames(
    connection: Connection, request: protocol.Generate, interrupts: Interrupts
) -> Iterator[protocol.ServerFrame]:
    """The frames of the request up to its last one, or until patience with a cancel ends.

    Errors: ``BrokenPipeError`` when who reads has left.
    """
    connection.send(request)
    give_up: float | None = None
    while True:
        if not interrupts.count:  # Ctrl-C ends the reader as well, and says more
            check_reader(sys.stdout)
        frame = connection.receive(LOOK_S)
        if interrupts.count and give_up is None:
            connection.send(protocol.Cancel(request.id))
            give_up = time.monotonic() + CANCEL_PATIENCE_S
        if give_up is not None and (interrupts.count > 1 or time.monotonic() > give_up):
            return
        if frame is None or getattr(frame, "id", None) != request.id:
            if isinstance(frame, protocol.Error) and not isinstance(frame.ref, str):
                yield frame  # about the frame itself: it could not be read
            continue
        yield frame
        if isinstance(frame, protocol.Done | protocol.Error):
            return
