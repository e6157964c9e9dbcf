"""The argument parser: errors are one line, and a mistyped flag is met with a guess."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from pagedd.config import did_you_mean
from pagedd.errors import UsageError


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of a description and of examples, unless the terminal is too narrow.

    argparse makes one for every argument, and would ask each time how wide the terminal is, by way
    of ``shutil``; ``width`` says it.
    """

    def __init__(self, prog: str, width: int) -> None:
        super().__init__(prog, width=width)

    def add_argument(self, action: argparse.Action) -> None:
        """argparse forgets that commands are indented: the longest would not fit their column."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += self._indent_increment

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if all(len(line) <= width for line in text.splitlines()):
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in _folded(text, width))


class Parser(argparse.ArgumentParser):
    """``argparse`` that raises :class:`UsageError` and never guesses an abbreviation."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", partial(_Help, width=_columns() - 2))
        super().__init__(allow_abbrev=False, **options)
        self.known_flags: list[str] = []
        self.asked = self.prog  # the command whose help a mistyped flag points to

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace(
            "expected one argument", "its value is missing"
        )
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """In words, where argparse names types of Python."""
        read = action.type
        if read is not int and read is not float:
            return super()._get_value(action, arg_string)
        try:
            return read(arg_string)
        except ValueError:
            wanted = "a whole number" if read is int else "a number"
            self.error(f"{_name_of(action)}: must be {wanted}, not {arg_string!r}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """With a guess."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            guess = did_you_mean(str(value), known)
            wanted = f"must be one of {', '.join(known)}"
            self.error(f"{_name_of(action)}: {wanted}, not {value!r}{guess}")

    def flags(self) -> list[str]:
        """All flags, for guesses and for the manual's test."""
        return [flag for action in self._actions for flag in action.option_strings]

    def parse_all(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse everything; a mistyped flag is compared with ``known_flags``."""
        found, unknown = self.parse_known_args(argv)
        if unknown:
            word = unknown[0]
            if word.startswith("-"):
                name = word.partition("=")[0]
                problem = f"there is no flag {name}{did_you_mean(name, self.known_flags)}"
            else:
                problem = f"one argument too many: {word!r}; a text with spaces needs quotes"
            raise UsageError(f"{problem} (see {self.asked} --help)")
        return found


def _name_of(action: argparse.Action) -> str:
    if action.option_strings:
        return "/".join(action.option_strings)
    return str(action.metavar or action.dest)


def examples(*lines: str) -> str:
    """The epilog of a command's help."""
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)


def _columns() -> int:
    """As ``shutil.get_terminal_size`` has them, whose import takes longer than all the rest."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    if sys.__stdout__ is None:
        return 80
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80
    except (ValueError, OSError):
        return 80


def _folded(text: str, width: int) -> list[str]:
    """Paragraphs, and terms with a text beside them; what is indented otherwise stays."""
    blocks: list[tuple[str, str]] = []  # a term or nothing, and what is to be folded
    lines: list[str] = []

    def flush() -> None:
        for term, body in blocks:
            room = textwrap.TextWrapper(width, term, " " * len(term), break_on_hyphens=False)
            lines.extend(room.wrap(body))
        blocks.clear()

    for line in text.splitlines():
        term = re.match(r"\S+ {2,}", line)
        hanging = len(blocks[-1][0]) if blocks else 0
        if term:
            blocks.append((term[0], line[term.end() :]))
        elif blocks and line.startswith(" " * hanging) and line[hanging:][:1].strip():
            blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]} {line[hanging:]}")
        elif line and not line[0].isspace():
            blocks.append(("", line))
        else:
            flush()
            lines.append(line)
    flush()
    return lines
