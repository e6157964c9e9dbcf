"""What the daemon needs to know about a model's text beside ``tokenizer.json``: ``text.json``.

Written once by :mod:`pagedd.text.prepare`, read by :mod:`pagedd.text.tokenizer`.
"""

from __future__ import annotations

from msgspec import Struct

TOKENIZER_FILE = "tokenizer.json"
INFO_FILE = "text.json"
# Part of the cache key: a change of the conversion or of TextInfo makes old entries unused.
CONVERTER_VERSION = 1


class Spelling(Struct, frozen=True, kw_only=True):
    """How token strings spell bytes, read from the decoder of ``tokenizer.json``.

    ``byte_level``: each character of a token is one byte (GPT-2's table). Otherwise
    SentencePiece's manner: ``space`` stands for a blank, with ``byte_fallback`` a token
    ``<0xHH>`` is a byte. ``strip_left``: blanks taken from the start of a decoded text;
    ``bare_start``: the first token loses all its ``space`` marks (the Metaspace decoder).
    """

    byte_level: bool
    space: str = "▁"
    byte_fallback: bool = False
    strip_left: int = 0
    bare_start: bool = False


class TextInfo(Struct, frozen=True, kw_only=True):
    """The content of ``text.json``.

    ``add_bos``: what the tokenizer does with a raw prompt. ``chat_bos``: a chat prompt must begin
    with BOS. ``eos_ids``: every end token that the tokenizer's own files name. ``named``: the
    special tokens that templates know by name (``bos_token``, …). ``longest``: for each byte
    value the length in bytes of the longest token that holds it, empty if a token's length says
    nothing about the text's; ``nfc``: it counts after Unicode's composition. ``cut``: how a text
    may be taken apart before a word without a change of its tokens: "keep" or "drop" the blank
    in between, or "" for not at all.
    """

    name: str
    vocab_size: int
    add_bos: bool
    chat_bos: bool
    spelling: Spelling
    chat_template: str | None = None
    bos_id: int | None = None
    bos_text: str | None = None
    eos_id: int | None = None
    eos_text: str | None = None
    eos_ids: tuple[int, ...] = ()
    special_ids: tuple[int, ...] = ()
    named: dict[str, str] = {}
    longest: tuple[int, ...] = ()
    nfc: bool = False
    cut: str = ""
    tokenizer_sha256: str = ""
