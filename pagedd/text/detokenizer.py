"""Text from token ids, one at a time: never half a character, never one that changes later.

The joined output equals ``tokenizers``' decoding of all ids at once. Both classes look at the new
token only, so a token costs the same at the start and at the end of a long text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection
from typing import Protocol

from pagedd.text.info import Spelling
from pagedd.text.spelling import piece_of


class Detokenizer(Protocol):
    """One choice's text. ``push`` returns the new text, ``flush`` what remains at the end."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class ByteDetokenizer:
    """For byte-level vocabularies: a text is the UTF-8 decoding of all bytes.

    An incomplete character waits; bytes that cannot become one are U+FFFD, as many as the
    Unicode standard recommends (section 3.9, maximal subparts).
    """

    def __init__(self, token_bytes: Callable[[int], bytes], skip: Collection[int]) -> None:
        self._token_bytes = token_bytes
        self._skip = skip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        if token_id in self._skip:
            return ""
        return self._decoder.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        return self._decoder.decode(b"", True)


class PieceDetokenizer:
    """For SentencePiece's manner: tokens are text, fallback tokens are bytes.

    A run of fallback bytes is text only as a whole (one wrong byte makes all of it U+FFFD), so it
    waits for the next token that is none. Blanks at the very start are dropped as ``spelling``
    says. ``token`` gives the token's string, or None for an id without one.
    """

    def __init__(
        self,
        token: Callable[[int], str | None],
        skip: Collection[int],
        spelling: Spelling,
    ) -> None:
        self._token = token
        self._skip = skip
        self._spelling = spelling
        self._run = bytearray()
        self._strip = spelling.strip_left
        self._bare = spelling.bare_start

    def push(self, token_id: int) -> str:
        if token_id in self._skip:
            return ""
        token = self._token(token_id)
        if token is None:
            return ""
        if self._bare:
            self._bare = False
            token = token.replace(self._spelling.space, "")
        piece = piece_of(token, self._spelling)
        if isinstance(piece, int):
            self._run.append(piece)
            return ""
        return self._start(self._take_run() + piece)

    def flush(self) -> str:
        return self._start(self._take_run())

    def _take_run(self) -> str:
        if not self._run:
            return ""
        run = bytes(self._run)
        self._run.clear()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\N{REPLACEMENT CHARACTER}" * len(run)

    def _start(self, text: str) -> str:
        while self._strip and text:
            if text[0] != " ":
                self._strip = 0
                break
            self._strip -= 1
            text = text[1:]
        return text
