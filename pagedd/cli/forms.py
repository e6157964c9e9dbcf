"""Flags for the form of an answer: JSON, a regular expression, a choice, a grammar."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pagedd.errors import UsageError

FIELDS = ("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
NAMED = ("text", "json_object")


def add_form_flags(parser: argparse.ArgumentParser) -> None:
    """At most one of them may be given; the daemon says so."""
    group = parser.add_argument_group("form of the answer")
    group.add_argument(
        "--guided-json", "--json-schema", metavar="FILE|JSON", help="JSON that keeps to this schema"
    )
    group.add_argument(
        "--guided-regex", "--regex", metavar="REGEX", help="a text that all of REGEX matches"
    )
    group.add_argument(
        "--guided-choice",
        "--choice",
        metavar="TEXT",
        action="append",
        help="one of these texts; repeatable",
    )
    group.add_argument(
        "--guided-grammar", metavar="FILE", help="what this grammar allows, in llguidance's Lark"
    )
    group.add_argument(
        "--response-format",
        metavar="FORM",
        help="json_object, text, or an object as OpenAI's API has it: FILE or JSON",
    )


def given_form(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``params`` that were given. Errors: ``UsageError`` that names the flag."""
    given: dict[str, Any] = {
        name: value for name in FIELDS if (value := getattr(args, name)) is not None
    }
    if "guided_json" in given:
        given["guided_json"] = _object("--guided-json/--json-schema", given["guided_json"])
    if "guided_grammar" in given:
        given["guided_grammar"] = _read("--guided-grammar", given["guided_grammar"])
    form = given.get("response_format")
    if form is not None:
        plain = form in NAMED
        given["response_format"] = {"type": form} if plain else _object("--response-format", form)
    return given


def _object(flag: str, value: str) -> dict[str, Any]:
    """JSON from the command line, where it begins with a brace, or from a file."""
    if not value:
        raise UsageError(f"{flag}: must be JSON or the name of a file, not nothing")
    text = value if value.lstrip().startswith("{") else _read(flag, value)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{flag}: {value[:60]!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{flag}: must be a JSON object")
    return found


def _read(flag: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{flag}: {path} cannot be read: {why}") from error
