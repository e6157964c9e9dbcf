"""What an OpenAI-compatible server streams: server-sent events, each a JSON object.

Only what a measurement needs is decoded: whether there is text, why it ended, the usage, an error.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pagedd.errors import PageddError

END = b"[DONE]"


class Choice(msgspec.Struct):
    """A piece of an answer."""

    text: str | None = None
    finish_reason: str | None = None


class Details(msgspec.Struct):
    """Of the prompt's tokens, those that the server had computed before."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Counts in tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Chunk(msgspec.Struct):
    """One event of a completion. ``error``: an object with a message, or the message."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None

    @property
    def pieces(self) -> int:
        """How many choices bring a token; one that only ends the answer brings none.

        A token may have no text yet: the first bytes of a character wait for the others.
        """
        return sum(1 for each in self.choices if each.text or each.finish_reason is None)


_decode = msgspec.json.Decoder(Chunk).decode


class EventReader:
    """Splits a stream of bytes into chunks."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Chunk]:
        """The chunks that are complete with ``data``. Errors: ``PageddError`` for what is none."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        chunks = []
        for line in lines:
            # comments, names of events and the empty line between two events say nothing here
            if not line.startswith(b"data:"):
                continue
            body = line[5:].strip()
            if body == END:
                continue
            try:
                chunks.append(_decode(body))
            except msgspec.MsgspecError as error:
                raise PageddError(f"an event of the stream is no completion: {error}") from error
        return chunks


def message_of(error: Any) -> str:
    """The message of an error as servers spell it: OpenAI's object, FastAPI's detail, or a text."""
    if isinstance(error, dict):
        for key in ("error", "message", "detail", "msg"):
            if error.get(key):
                return message_of(error[key])
    if isinstance(error, list) and error:
        return message_of(error[0])
    return " ".join(str(error).split())
