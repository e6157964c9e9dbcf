"""From token strings to the bytes they stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer

from pagedd.errors import ModelError
from pagedd.text.info import Spelling

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """The table of byte-level BPE: character → byte. Printable bytes stand for themselves.

    Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners (GPT-2).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update({chr(256 + shift): byte for shift, byte in enumerate(others)})
    return table


def piece_of(token: str, spelling: Spelling) -> str | int:
    """A token of SentencePiece's manner: its text, or the byte value of a fallback token."""
    if spelling.byte_fallback and (match := _BYTE_PIECE.fullmatch(token)):
        return int(match[1], 16)
    return token.replace(spelling.space, " ")


def bytes_of(token: str, spelling: Spelling, alphabet: Mapping[str, int]) -> bytes:
    """The bytes that a token stands for, wherever it occurs but at a text's start.

    A token of a byte-level vocabulary with a character outside of the alphabet (a special token)
    is its own text, as ``tokenizers`` decodes it.
    """
    if not spelling.byte_level:
        piece = piece_of(token, spelling)
        return bytes((piece,)) if isinstance(piece, int) else piece.encode()
    try:
        return bytes([alphabet[character] for character in token])
    except KeyError:
        return token.encode()


def read_spelling(tokenizer: Tokenizer) -> Spelling:
    """The spelling that the tokenizer's decoder implies. Errors: ``ModelError`` by its name."""
    decoder = tokenizer.decoder
    if decoder is None:
        raise ModelError("the tokenizer has no decoder: its tokens cannot be joined to text")
    description: dict[str, Any] = json.loads(decoder.__getstate__())
    parts = description.get("decoders", [description])
    kinds = [part.get("type") for part in parts]
    if kinds == ["ByteLevel"]:
        return Spelling(byte_level=True)
    if kinds == ["Metaspace"]:
        return Spelling(
            byte_level=False,
            space=parts[0]["replacement"],
            bare_start=parts[0].get("prepend_scheme", "always") != "never",
        )
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and kinds[3:] in ([], ["Strip"]):
        replaced, strip = parts[0], parts[3] if len(parts) == 4 else {"start": 0}
        space = replaced["pattern"].get("String")
        blank = strip.get("content", " ") == " " and strip.get("stop", 0) == 0
        if space and replaced["content"] == " " and blank:
            return Spelling(
                byte_level=False, space=space, byte_fallback=True, strip_left=strip["start"]
            )
    raise ModelError(f"the tokenizer's decoder {'+'.join(map(str, kinds))} is not supported")
