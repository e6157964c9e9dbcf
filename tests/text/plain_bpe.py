"""Byte-level BPE from its definition, slowly: the oracle for the embedded model's tokenizer.

Words as GPT-2 splits them, but every digit a word of its own; then the pair of the least rank is
merged until none is left. Nothing here comes from ``tokenizers``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
# Over classes: L letter, blank, S other white space, P all else. (?![^S ]) is "no word follows".
_WORD = re.compile(r" ?L+| ?P+|[S ]+(?![^S ])|[S ]+")


class PlainBpe:
    def __init__(self, tokens: list[str], types: list[int], merges: list[str]) -> None:
        self._ids = {token: index for index, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        control = [token for token, kind in zip(tokens, types, strict=True) if kind == 3]
        self._control = re.compile("(" + "|".join(map(re.escape, control)) + ")")
        self._letters = _byte_letters()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for at, part in enumerate(self._control.split(text)):
            if at % 2:
                ids.append(self._ids[part])
                continue
            for word in _words(part):
                ids += self._merged(word)
        return ids

    def _merged(self, word: str) -> list[int]:
        parts = [self._letters[byte] for byte in word.encode()]
        while True:
            pairs = [
                (self._ranks[pair], at)
                for at, pair in enumerate(pairwise(parts))
                if pair in self._ranks
            ]
            if not pairs:
                return [self._ids[part] for part in parts]
            _, at = min(pairs)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _words(text: str) -> Iterator[str]:
    start = 0
    for at, character in enumerate(text):
        if unicodedata.category(character).startswith("N"):
            yield from _gpt2_words(text[start:at])
            yield character
            start = at + 1
    yield from _gpt2_words(text[start:])


def _gpt2_words(text: str) -> Iterator[str]:
    classes = "".join(map(_class, text))
    at = 0
    while at < len(text):
        match = next((c for c in _CONTRACTIONS if text.startswith(c, at)), None)
        if match is not None:
            end = at + len(match)
        else:
            found = _WORD.match(classes, at)
            assert found is not None
            end = found.end()
        yield text[at:end]
        at = end


def _class(character: str) -> str:
    if character == " ":
        return " "
    if character.isspace() and not "\x1c" <= character <= "\x1f":
        return "S"
    return "L" if unicodedata.category(character).startswith("L") else "P"


def _byte_letters() -> list[str]:
    letters, extra = [], 256
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            letters.append(chr(byte))
        else:
            letters.append(chr(extra))
            extra += 1
    return letters
