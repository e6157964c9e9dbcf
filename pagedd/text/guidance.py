"""What llguidance is told, and what it says."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from pagedd.errors import BadRequest

# Tokens are not forced, whatever else a grammar says: the last word counts.
OPTIONS = '%llguidance {"no_forcing": true}'
MAX_GRAMMAR = 128 * 1024  # characters; those of properties and choices cost more than they look
MAX_SCHEMA = 1024 * 1024  # characters of a schema that is looked at
MAX_STATES = 50_000  # of one grammar's lexer, about a kilobyte each
NO_ANSWER = "no answer is allowed"
MAX_SAID = 200  # characters of a complaint
# One way to write JSON: a model with a taste for white space could go on with it for ever.
JSON_STYLE: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
MAX_WRITTEN_OUT = 256  # references in a schema
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # hold schemas by name
_DATA = ("const", "enum", "default", "examples")
_PLACE = re.compile(r"^(at )?\d+\(\d+\): ")


def json_grammar(schema: dict[str, Any], *, lenient: bool = False) -> str:
    """A schema as an item of a Lark rule. Raises BadRequest if it is nested too deeply, or
    too long to be looked at.

    ``lenient``: what llguidance does not know of the schema is left out, instead of refused.
    """
    style = {**JSON_STYLE, "lenient": lenient, "coerce_one_of": lenient}
    try:
        size = len(msgspec.json.encode(schema))
        if size > MAX_SCHEMA:
            raise BadRequest(f"the schema has {size} characters, the limit is {MAX_SCHEMA}")
        text = msgspec.json.encode({**plainer(schema), "x-guidance": style}).decode()
    except RecursionError:
        raise BadRequest("the schema is nested too deeply") from None
    return f"%json {text}"


def plainer(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema in words that llguidance knows. May raise RecursionError.

    What ``oneOf`` lists is written out where it is a reference, because only so is it seen that no
    two of them match together; and what says nothing is left out.
    """
    unions: list[list[Any]] = []
    root: dict[str, Any] = _copied(schema, unions)
    written = 0
    for union in unions:
        for at, branch in enumerate(union):
            target = _target(root, branch)
            if target is not None and written < MAX_WRITTEN_OUT:
                written += 1
                union[at] = target | {key: branch[key] for key in branch if key != "$ref"}
    return root


def _copied(schema: Any, unions: list[list[Any]]) -> Any:
    """A copy down to where data begin; its lists of ``oneOf`` are added to ``unions``."""
    if isinstance(schema, list):
        return [_copied(each, unions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            copy[key] = {name: _copied(each, unions) for name, each in value.items()}
        elif key in _DATA:
            copy[key] = value
        elif key != "uniqueItems" or value is not False:
            copy[key] = _copied(value, unions)
            if key == "oneOf" and isinstance(value, list):
                unions.append(copy[key])
    return copy


def _target(root: dict[str, Any], branch: Any) -> dict[str, Any] | None:
    """What a reference into ``root`` names; None for anything else."""
    reference = branch.get("$ref") if isinstance(branch, dict) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


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
