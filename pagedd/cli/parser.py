"""The argument parser: errors are one line, and a mistyped flag is met with a guess."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from pagedd.config import did_you_mean
from pagedd.errors import UsageError


class Parser(argparse.ArgumentParser):
    """``argparse`` that raises :class:`UsageError` and never guesses an abbreviation."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self.known_flags: list[str] = []
        self.asked = self.prog  # the command whose help a mistyped flag points to

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

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


def examples(*lines: str) -> str:
    """The epilog of a command's help."""
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)
