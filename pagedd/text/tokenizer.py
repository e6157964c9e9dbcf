"""The daemon's view of a model's text: encode, decode, chat, and what one token says.

Imports ``tokenizers`` and jinja2, never transformers. ``encode`` and its relatives let other
threads run while they work: ``tokenizers`` releases the interpreter lock in its batch calls (and
not in ``encode``), so the daemon calls them in a worker thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

import msgspec
from tokenizers import Tokenizer

from pagedd.errors import BadRequest, ModelError, PromptTooLong
from pagedd.text.bounds import WINDOW, LowerBound, windows
from pagedd.text.chat import ChatTemplate
from pagedd.text.detokenizer import ByteDetokenizer, Detokenizer, PieceDetokenizer
from pagedd.text.guard import Guard, check_text
from pagedd.text.info import INFO_FILE, TOKENIZER_FILE, TextInfo
from pagedd.text.spelling import byte_alphabet, bytes_of
from pagedd.text.tools import as_plain_chat

_ANCHOR = "\n"
MOST_AT_ONCE = 16 * 1024  # ids: ``tokenizers`` decodes without letting other threads run


class TextModel:
    """Tokenizer and chat template of one model. Safe to use from several threads.

    Raw prompts are read as other servers do: text that spells a special token is that token, and
    BOS is put in front if the tokenizer's settings say so (``add_bos``). In chat messages only the
    template can write special tokens (:mod:`pagedd.text.guard`), and the prompt begins with
    exactly one BOS, whoever wrote it.
    """

    def __init__(self, tokenizer: Tokenizer, info: TextInfo) -> None:
        self._tokenizer = tokenizer
        self.info = info
        self.name = info.name
        self.vocab_size = info.vocab_size
        self.add_bos = info.add_bos
        self.bos_id = info.bos_id
        self.eos_ids = frozenset(info.eos_ids)
        self.special_ids = frozenset(info.special_ids)
        self.chat = ChatTemplate(info.chat_template, info.named)
        self._at_least = LowerBound(info.longest)
        self._alphabet = byte_alphabet()
        self._bytes: dict[int, bytes] = {}
        self._tokens: dict[int, str | None] = {}

    @classmethod
    def load(cls, text_dir: Path | str) -> TextModel:
        """From a folder that ``prepare`` made. Errors: ``ModelError``."""
        folder = Path(text_dir)
        # One text at a time needs no pool of threads, and a pool complains when we start engines.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            info = msgspec.json.decode((folder / INFO_FILE).read_bytes(), type=TextInfo)
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        except OSError as error:
            raise ModelError(f"{folder} cannot be read: {error.strerror}") from error
        except Exception as error:  # tokenizers raises Exception itself
            raise ModelError(f"{folder} is damaged: {error}") from error
        return cls(tokenizer, info)

    def encode(self, text: str, *, add_bos: bool, field: str = "prompt") -> list[int]:
        """Token ids of a raw text of any length. Errors: ``BadRequest`` naming ``field``."""
        check_text(text, field)
        ids = self._encode(text)
        return [self.bos_id, *ids] if add_bos and self.bos_id is not None else ids

    def encode_bounded(
        self, text: str, max_tokens: int, *, add_bos: bool | None = None, field: str = "prompt"
    ) -> list[int]:
        """As ``encode``, but refuses what is longer than ``max_tokens`` in bounded time.

        ``add_bos`` None follows the tokenizer. Errors: ``PromptTooLong`` with the limit and a
        true lower bound of the length, ``BadRequest``.
        """
        add_bos = self.add_bos if add_bos is None else add_bos
        front = [self.bos_id] if add_bos and self.bos_id is not None else []
        return self._bounded([text], front, max_tokens, field)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Token ids of a chat, ready for the assistant's answer.

        ``tools`` are written by the template, or as :mod:`pagedd.text.tools` does.
        Errors: ``PromptTooLong``, ``BadRequest`` (no template, refused by it, no valid text).
        """
        if len(messages) > max_tokens:  # each is at least a token; templates may be quadratic
            raise _too_long("messages", len(messages), max_tokens)
        if not self.chat.takes_tools:
            messages, tools = as_plain_chat(messages, tools), None
        marked = self._guard.mark(messages)
        marked_tools = None if tools is None else self._guard.mark(tools, "tools")
        parts = self._guard.split(self.chat.render(marked, add_generation_prompt, marked_tools))
        ids = self._bounded(parts, [], max_tokens, "messages")
        bos = self.bos_id
        if self.info.chat_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
            if len(ids) > max_tokens:
                raise _too_long("messages", len(ids), max_tokens)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        """Text of all ids at once; ids without a token are nothing."""
        if len(ids) > MOST_AT_ONCE:
            decoder = self.detokenizer(skip_special=skip_special)
            return "".join(map(decoder.push, ids)) + decoder.flush()
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)

    def detokenizer(self, *, skip_special: bool, whole: bool = False) -> Detokenizer:
        """A new incremental decoder; its joined output equals ``decode``.

        ``whole``: but for a blank that ``decode`` takes from the start. Here it is kept.
        """
        skip: frozenset[int] = self.special_ids if skip_special else frozenset()
        if self.info.spelling.byte_level:
            return ByteDetokenizer(self.token_bytes, skip)
        spelling = self.info.spelling
        if whole:
            spelling = msgspec.structs.replace(spelling, strip_left=0, bare_start=False)
        return PieceDetokenizer(self._token, skip, spelling)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; empty for an id without a token."""
        found = self._bytes.get(token_id)
        if found is None:
            token = self._token(token_id)
            spelled = "" if token is None else token
            found = bytes_of(spelled, self.info.spelling, self._alphabet)
            self._bytes[token_id] = found
        return found

    def token_text(self, token_id: int) -> str:
        """The token by itself as text; bytes that are no whole character are U+FFFD."""
        return self.token_bytes(token_id).decode(errors="replace")

    @cached_property
    def _guard(self) -> Guard:
        return Guard([token for at in self.special_ids if (token := self._token(at)) is not None])

    @cached_property
    def _anchor_ids(self) -> list[int]:
        return self._encode(_ANCHOR)

    def _token(self, token_id: int) -> str | None:
        if token_id not in self._tokens:
            if not 0 <= token_id < self.vocab_size:
                return None  # not kept: the table stays as small as the vocabulary
            self._tokens[token_id] = self._tokenizer.id_to_token(token_id)
        return self._tokens[token_id]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def _encode_on(self, text: str) -> list[int]:
        """Ids of a text that continues another: no blank is put before it."""
        if self.info.spelling.byte_level:
            return self._encode(text)
        anchor = self._anchor_ids
        ids = self._encode(_ANCHOR + text)
        return ids[len(anchor) :] if ids[: len(anchor)] == anchor else self._encode(text)

    def _least(self, text: str, field: str) -> int:
        """A lower bound of the tokens of ``text``, however it is taken apart."""
        data = check_text(text, field)
        if not self.info.nfc or text.isascii():
            return self._at_least(data)
        # In slices, to let other threads run. What would have been composed over an edge, at most
        # four code points, and each slice's rounding are taken off again.
        slices = (text[at : at + WINDOW] for at in range(0, len(text), WINDOW))
        counts = [self._at_least(normalize("NFC", part).encode()) - 17 for part in slices]
        return max(0, sum(counts))

    def _bounded(
        self, parts: Sequence[str], front: list[int], max_tokens: int, field: str
    ) -> list[int]:
        """Ids of ``front`` and the parts, which are tokenised each by itself."""
        least = len(front) + self._least("".join(parts), field)
        if least > max_tokens:
            raise _too_long(field, least, max_tokens)
        ids = list(front)
        for at, part in enumerate(parts):
            for number, window in enumerate(windows(part, self.info.cut)):
                whole = at == 0 or number > 0
                ids += self._encode(window) if whole else self._encode_on(window)
                if len(ids) > max_tokens:
                    raise _too_long(field, len(ids), max_tokens)
        return ids


def _too_long(field: str, at_least: int, max_tokens: int) -> BadRequest:
    return PromptTooLong(
        f"{field}: at least {at_least} tokens, the limit is {max_tokens}",
        detail={"prompt_tokens_at_least": at_least, "max_prompt_tokens": max_tokens},
    )
