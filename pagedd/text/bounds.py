"""How many tokens a text must have at least, and where it may be taken apart.

Both are measured once when a tokenizer is prepared, so that a text of megabytes that cannot fit
is refused without being tokenised.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tokenizers import Tokenizer

from pagedd.text.info import Spelling

# Characters tokenised at a time: small enough that a refusal comes soon after the limit.
WINDOW = 1 << 16
_WORD_START = re.compile(r"[A-Za-z](?= [A-Za-z])")
_HOLDS_CUT = re.compile(rb"[A-Za-z] ")
# Texts on both sides of a cut: (before, after), to be joined by a blank.
_PROBES = (
    ("alpha", "beta gamma"),
    ("It's x", "a"),
    ("\n\nZed", "end.\n  next 12345 word"),
    ("  two  spaces", "Then, é漢字🙂 tail"),
    ("a+b)c", "THE End"),
)


class LowerBound:
    """A count of tokens that a text cannot fall below.

    A token of L bytes covers L bytes, and each of them counts 1/longest ≤ 1/L, where ``longest``
    is the length of the longest token that holds this byte value. So the sum of 1/longest over a
    text's bytes is at most its number of tokens. Byte values in no token count nothing.
    """

    def __init__(self, longest: tuple[int, ...]) -> None:
        groups: dict[int, list[int]] = {}
        for byte, length in enumerate(longest):
            if length:
                groups.setdefault(length.bit_length(), []).append(byte)
        self._groups = [
            (bytes(members), max(longest[byte] for byte in members)) for members in groups.values()
        ]

    def __call__(self, data: bytes) -> int:
        """``data``: the text as UTF-8. Cost: a few passes at memory speed."""
        total = sum(
            (len(data) - len(data.translate(None, members))) / length
            for members, length in self._groups
        )
        return math.ceil(total - 1e-6)


def longest_by_byte(
    tokenizer: Tokenizer, spelling: Spelling, token_bytes: Iterable[bytes]
) -> tuple[int, ...]:
    """``LowerBound``'s table, or () where a normalizer or unknown tokens may swallow text."""
    lossless = spelling.byte_level or spelling.byte_fallback
    strips = any(
        added.lstrip or added.rstrip for added in tokenizer.get_added_tokens_decoder().values()
    )
    if not lossless or strips or not all(map(_keeps_length, normalizers_of(tokenizer))):
        return ()
    longest = [0] * 256
    for spelled in token_bytes:
        for byte in set(spelled):
            longest[byte] = max(longest[byte], len(spelled))
    return tuple(longest)


def normalizers_of(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """What the tokenizer does to a text first, step by step, as ``tokenizer.json`` has it."""
    normalizer = tokenizer.normalizer
    if normalizer is None:
        return []
    state: dict[str, Any] = json.loads(normalizer.__getstate__())
    return state["normalizers"] if state["type"] == "Sequence" else [state]


def _keeps_length(step: dict[str, Any]) -> bool:
    """Whether a step leaves every byte; NFC does on text that is measured after NFC."""
    blank = step.get("pattern") == {"String": " "} and step.get("content") == "▁"
    return step["type"] in ("Prepend", "NFC") or (step["type"] == "Replace" and blank)


def find_cut(tokenizer: Tokenizer, token_bytes: Iterable[bytes]) -> Literal["keep", "drop", ""]:
    """How to tokenise in parts before a word that follows a letter and one blank.

    No token may reach over the cut, and parts must give the tokens of the whole on probes of every
    kind of neighbour: with the blank kept at the start of the second part, or dropped, where the
    tokenizer itself puts one before every text. "" if neither holds.
    """
    if any(_HOLDS_CUT.search(spelled) for spelled in token_bytes):
        return ""
    for added in tokenizer.get_added_tokens_decoder().values():
        text = added.content
        if (added.lstrip and text[:1].isalpha()) or (added.rstrip and text[-1:].isalpha()):
            return ""

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    if all(ids(f"{a} {b}") == ids(a) + ids(f" {b}") for a, b in _PROBES):
        return "keep"
    if all(ids(f"{a} {b}") == ids(a) + ids(b) for a, b in _PROBES):
        return "drop"
    return ""


def windows(text: str, cut: str) -> Iterator[str]:
    """The text in parts of at least ``WINDOW`` characters whose tokens, joined, are the whole's."""
    start = 0
    while cut and (match := _WORD_START.search(text, start + WINDOW)):
        yield text[start : match.end()]
        start = match.end() + (1 if cut == "drop" else 0)
    yield text[start:]
