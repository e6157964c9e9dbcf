"""An answer on standard output, and the messages on standard error that come behind it."""

from __future__ import annotations

import os
import stat
import sys

from pagedd.cli.terminal import is_terminal, visible


class Output:
    """A model's text as it comes: as it is, or without controls on a terminal."""

    def __init__(self) -> None:
        self._terminal = is_terminal(sys.stdout)
        self._in_line = False

    def show(self, text: str) -> None:
        """Write and flush."""
        if text:
            self._in_line = not text.endswith("\n")
        sys.stdout.write(visible(text) if self._terminal else text)
        sys.stdout.flush()

    def end_line(self) -> None:
        """A terminal gets the end of a line that has none; elsewhere the text stays as it was."""
        if self._terminal and self._in_line:
            self.show("\n")

    def lead(self) -> str:
        """What a message on standard error has to begin with, so that it begins a line.

        It is for the same write as the message: what comes out of a pipe could come between two.
        """
        self.end_line()
        if not (self._in_line and _seen_together()):
            return ""
        self._in_line = False
        return "\n"


def _seen_together() -> bool:
    """Whether both streams are one file, or standard output is piped and the other a terminal."""
    try:
        out, err = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.path.samestat(out, err) or (stat.S_ISFIFO(out.st_mode) and is_terminal(sys.stderr))
