"""The sampling flags: one for each field of ``params`` in pagedd-protocol(7).

Ranges live in the protocol's struct alone; a value it refuses is reported under its flag.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from pagedd.cli.forms import add_form_flags, given_form
from pagedd.errors import UsageError

if TYPE_CHECKING:
    from pagedd.protocol import Params

# field, metavar, type, help
_NUMBERS: tuple[tuple[str, str, type, str], ...] = (
    ("max_tokens", "N", int, "longest answer in tokens (default: what the model holds)"),
    ("min_tokens", "N", int, "no end of the answer before this many tokens (default: 0)"),
    ("temperature", "X", float, "0 takes the likeliest token, higher is more varied (default: 1)"),
    ("top_p", "X", float, "draw from the likeliest tokens with this total (default: 1)"),
    ("top_k", "N", int, "draw from the N likeliest tokens; 0 is off (default: 0)"),
    ("min_p", "X", float, "drop tokens below this share of the likeliest (default: 0)"),
    ("presence_penalty", "X", float, "against tokens that the answer has already (default: 0)"),
    ("frequency_penalty", "X", float, "the same, for each time they came (default: 0)"),
    ("repetition_penalty", "X", float, "against tokens of prompt and answer (default: 1)"),
    ("seed", "N", int, "the same seed gives the same answer"),
    ("logprobs", "N", int, "with --json: log probabilities, and those of N alternatives"),
    ("n", "N", int, "this many answers (default: 1)"),
)
_WORDS = (
    (r"^expected str of length >= 1$", "must be a text that is not empty"),
    (r"^expected (int|float)", r"must be \1"),
    (r"\bint\b", "a whole number"),
    (r"\bfloat\b", "a number"),
    (r">= (\S+?)(?:\.0)?$", r"of at least \1"),
    (r"<= (\S+?)(?:\.0)?$", r"of at most \1"),
    (r"> (\S+?)(?:\.0)?$", r"above \1"),
)


def add_sampling_flags(parser: argparse.ArgumentParser, hidden: tuple[str, ...] = ()) -> None:
    """All of them, in a group of their own; without a default, so that only given ones are sent.

    ``hidden``: fields that the help does not offer, because they are refused with a reason.
    """
    group = parser.add_argument_group("sampling")
    for field, metavar, kind, help_ in _NUMBERS:
        shown = argparse.SUPPRESS if field in hidden else help_
        group.add_argument(_flag(field), dest=field, metavar=metavar, type=kind, help=shown)
    group.add_argument(
        "--stop",
        metavar="TEXT",
        action="append",
        help="end the answer before this text; \\n is a newline; repeatable",
    )
    group.add_argument(
        "--stop-token-ids", metavar="ID,…", help="end the answer at one of these tokens"
    )
    group.add_argument(
        "--include-stop-str-in-output",
        action="store_true",
        default=None,
        help="keep the stop text in the answer",
    )
    group.add_argument(
        "--ignore-eos", action="store_true", default=None, help="go on past the model's end token"
    )
    group.add_argument(
        "--logit-bias", metavar="ID:X,…", help="add X (-100 to 100) to the score of a token"
    )
    group.add_argument(
        "--no-skip-special-tokens",
        dest="skip_special_tokens",
        action="store_false",
        default=None,
        help="show special tokens in the answer",
    )
    add_form_flags(parser)


def params_from(args: argparse.Namespace) -> Params:
    """The struct of what was given. Errors: ``UsageError`` that names the flag."""
    import msgspec

    from pagedd.protocol import Params

    fields = [name for name, *_ in _NUMBERS]
    fields += ["include_stop_str_in_output", "ignore_eos", "skip_special_tokens"]
    given: dict[str, Any] = {
        name: getattr(args, name) for name in fields if getattr(args, name) is not None
    }
    if args.stop:
        given["stop"] = [text.replace("\\n", "\n") for text in args.stop]
    if args.stop_token_ids is not None:
        given["stop_token_ids"] = _ids(args.stop_token_ids)
    if args.logit_bias is not None:
        given["logit_bias"] = _biases(args.logit_bias)
    given |= given_form(args)
    try:
        return msgspec.convert(given, Params)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        field = re.match(r"(?:key in )?\$\.(\w+)", where.removeprefix("key` in `"))
        flag = _flag(field[1]) if field else "a sampling flag"
        raise UsageError(f"{flag}: {_in_words(what.replace('`', ''))}") from error


def _in_words(expected: str) -> str:
    """What msgspec says of a value, without the types of Python."""
    said = expected[:1].lower() + expected[1:]
    for pattern, words in _WORDS:
        said = re.sub(pattern, words, said)
    return said


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--stop-token-ids: must be ids like 2,13, not {text!r}") from error


def _biases(text: str) -> dict[int, float]:
    try:
        pairs = (part.split(":") for part in text.split(","))
        return {int(token): float(bias) for token, bias in pairs}
    except ValueError as error:
        raise UsageError(f"--logit-bias: must be pairs like 13:-5,42:2, not {text!r}") from error
