"""What llguidance is told, and what it says."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from pagedd.errors import BadRequest

# Tokens are not forced, whatever else a grammar says: the last word counts.
OPTIONS = '%llguidance {"no_forcing": true}'
NO_ANSWER = "no answer is allowed"
MAX_SAID = 200  # characters of a complaint
# One way to write JSON: a model with a taste for white space could go on with it for ever.
JSON_STYLE: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
_PLACE = re.compile(r"^(at )?\d+\(\d+\): ")


def json_grammar(schema: dict[str, Any], *, lenient: bool = False) -> str:
    """A schema as an item of a Lark rule. Raises BadRequest if it is nested too deeply.

    ``lenient``: what llguidance does not know of the schema is left out, instead of refused.
    """
    style = {**JSON_STYLE, "lenient": lenient, "coerce_one_of": lenient}
    try:
        text = msgspec.json.encode({**schema, "x-guidance": style}).decode()
    except RecursionError:
        raise BadRequest("the schema is nested too deeply") from None
    return f"%json {text}"


def complaint(message: str) -> str | None:
    """What is wrong with a grammar, without the place in a text that the client never saw."""
    if not message or message.startswith("WARNING"):
        return None
    first, *others = message.strip().split("\n")
    for line in others:
        if line.startswith("error: "):  # of the parser of regular expressions
            return line.removeprefix("error: ")
    if first.startswith("NoExtension"):
        return NO_ANSWER
    line = _PLACE.sub("", first).removeprefix("failed to compile JSON schema: ")
    return line.split(". Enable ")[0].split("; following special")[0][:MAX_SAID]
