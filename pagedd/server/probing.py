"""Following a grammar for a while, before anybody waits for an answer in it.

llguidance builds automata as an answer goes on, within limits. What repeats repetitions, as
``((a{1,100}){1,100}){1,100}`` does, reads well and passes them after a few letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pagedd.text.guidance import NO_ANSWER, OPTIONS, complaint, json_grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher

FORCED = 8  # times that what must come next is read
FOLLOWED = 256  # bytes of an answer
MAX_PATTERNS = 32  # of schemas, which are followed one by one too
TOO_COMPLEX = "it is too complex to be followed"

# Without a counted repetition nothing is known that passes the limits so soon.
_COUNTED = re.compile(r"\{\s*,?\s*\d|~\s*\d")
_PATTERN = re.compile(r'"pattern"\s*:\s*("(?:[^"\\]|\\.)*")')
_BYTES = (1 << 256) - 1  # the vocabulary of bytes has an end besides
_LETTERS = sum(1 << ord(each) for each in "0123456789abcdefghijklmnopqrstuvwxyz")

Make = Callable[[str], "LLMatcher"]  # from a grammar, with bytes as tokens
Choose = Callable[[int], int]  # of the bytes that are allowed, as bits: one


def fault_at_start(matcher: LLMatcher) -> str | None:
    """Follow what must come, and see whether anything can."""
    for step in range(FORCED):
        mask = b"" if matcher.is_error() else matcher.compute_bitmask()
        if matcher.is_error() and step > 0:
            return complaint(matcher.get_error()) or "llguidance cannot follow it"
        allowed = int.from_bytes(mask, "little")
        if not allowed or matcher.is_error():
            return complaint(matcher.get_error()) or NO_ANSWER
        if allowed & (allowed - 1) or matcher.is_accepting():
            break
        matcher.consume_token(_lowest(allowed))
    return None


def fault_further_on(grammar: str, make: Make) -> str | None:
    """Why llguidance gives up before the 256th byte of answers as dull as can be.

    Only where it gives up on each of them: what fails with other answers is told when it does.
    """
    if _COUNTED.search(grammar) is None:
        return None
    for each in (grammar, *_patterns(grammar)):
        # each time made anew: copies fail together
        said = [_follow(make(each), choose) for choose in (_lowest, _highest)]
        if all(said):
            return f"{TOO_COMPLEX}: {said[0]}"
    return None


def _follow(matcher: LLMatcher, choose: Choose) -> str | None:
    for _ in range(FOLLOWED):
        allowed = int.from_bytes(matcher.compute_bitmask(), "little") & _BYTES
        allowed = allowed & _LETTERS or allowed  # so that no string ends soon
        if not allowed or not matcher.consume_token(choose(allowed)):
            break
    return complaint(matcher.get_error()) if matcher.is_error() else None


def _patterns(grammar: str) -> Iterator[str]:
    """Each pattern of the schemas in it as a grammar of its own: some lie too deep to be met."""
    found = dict.fromkeys(_PATTERN.findall(grammar))
    counted = [json.loads(each) for each in found if _COUNTED.search(each)]
    for pattern in counted[:MAX_PATTERNS]:
        schema = json_grammar({"type": "string", "pattern": pattern})
        yield f"start: {schema}\n{OPTIONS}\n"


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _highest(bits: int) -> int:
    return bits.bit_length() - 1
