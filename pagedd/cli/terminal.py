"""What may be written to a terminal, and what a stream can show.

A model's text is data. On a terminal its control characters are dropped one by one rather than
parsed as sequences: nothing that is left can steer the terminal, it makes no difference how a
sequence is split over tokens, and no unfinished sequence can swallow the text behind it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

# C0 but tab and newline, DEL, C1.
_CONTROLS: Mapping[int, None] = MappingProxyType(
    dict.fromkeys([*(c for c in range(0x20) if c not in (0x09, 0x0A)), *range(0x7F, 0xA0)])
)


def visible(text: str) -> str:
    """``text`` without ESC, BEL, C1 and the other controls; tabs and newlines stay."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """``text`` for a message: no controls, and white space of any kind is one space."""
    return " ".join(visible(text.replace("\r", " ")).split())


def is_terminal(stream: TextIO) -> bool:
    """Whether a person may be looking; a closed stream is no terminal."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def is_fancy(stream: TextIO) -> bool:
    """Whether colours and moving output are wanted: a terminal with a name, no ``NO_COLOR``."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    return is_terminal(stream)


def can_show(stream: TextIO, text: str) -> bool:
    """Whether the stream's encoding knows these characters."""
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def clip(text: str, cells: int, stream: TextIO) -> str:
    """``text`` on one line, without controls, no longer than ``cells``."""
    text = one_line(text)
    if len(text) <= cells:
        return text
    end = "…" if can_show(stream, "…") else "..."
    return text[: max(cells - len(end), 0)] + end


def columns_of(stream: TextIO) -> int:
    """Columns that a line may fill: those of a terminal. A file or pipe has any number."""
    if not is_terminal(stream):
        return 200
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def check_reader(stream: TextIO) -> None:
    """For loops that wait for something to write: a reader that has left ends them too.

    Errors: ``BrokenPipeError``, as a write would, when nobody is at the other end of ``stream``.
    """
    import select

    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)  # these two are reported without being asked for
        events = [event for _, event in poll.poll(0)]
    except (OSError, ValueError):
        return  # no file of the system's
    if any(event & (select.POLLERR | select.POLLHUP) for event in events):
        raise BrokenPipeError


def prepare_streams() -> None:
    """Make output that can never raise an encode error, even where a stream was closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115


def say(message: str, lead: str = "") -> None:
    """One line on standard error, behind ``lead``."""
    print(f"{lead}pagedd: {one_line(message)}", file=sys.stderr, flush=True)


def write_json(encoded: bytes) -> None:
    """One line of JSON on standard output; escaped where the encoding is not UTF-8."""
    line = encoded.decode()
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        import json

        line = json.dumps(json.loads(line))
    print(line, flush=True)


class Notice:
    """A passing line on standard error, such as "waiting, 3 before you". Only on a terminal."""

    def __init__(self) -> None:
        self.enabled = is_fancy(sys.stderr)
        self._shown = ""

    def show(self, text: str) -> None:
        """Replace the line."""
        if self.enabled and text != self._shown:
            # a line that the terminal folds could not be taken away again
            shown = clip(text, columns_of(sys.stderr) - 1, sys.stderr)
            print(f"\r\x1b[K\x1b[2m{shown}\x1b[0m", end="", file=sys.stderr, flush=True)
            self._shown = text

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = ""


class Style:
    """Colours for one stream, or none."""

    def __init__(self, stream: TextIO) -> None:
        self.enabled = is_fancy(stream)

    def __call__(self, text: str, code: str) -> str:
        """``text`` in the colour of an SGR code such as "1" (bold) or "32" (green)."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled else text
