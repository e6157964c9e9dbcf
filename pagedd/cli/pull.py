"""``pagedd pull``: download a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pagedd.cli.parser import examples
from pagedd.cli.terminal import say
from pagedd.models.catalog import CATALOG, DEFAULT_MODEL

DESCRIPTION = f"""\
Download a model into the cache folder and check it. Short names: {", ".join(sorted(CATALOG))}.
What is there already is not downloaded again; an interrupted download goes on where it was."""
EPILOG = examples(
    "pagedd pull",
    f"pagedd pull {DEFAULT_MODEL}",
    "pagedd pull HuggingFaceTB/SmolLM2-360M-Instruct",
)
Progress = Callable[[float, str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model's name."""
    parser.add_argument(
        "name",
        nargs="?",
        default=DEFAULT_MODEL,
        help=f"short name or hub id (default: {DEFAULT_MODEL})",
    )


def run(args: argparse.Namespace) -> int:
    """0; 1 when it cannot be had."""
    print(fetch(args.name))
    return 0


def fetch(name: str) -> Path:
    """Download with progress on standard error; returns the file or folder.

    Errors: those of ``pagedd.models.pull``.
    """
    from pagedd.models.pull import pull

    with shown_progress() as progress:
        return pull(name, progress)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A function (fraction, what) that draws a bar on a terminal and plain lines elsewhere."""
    from pagedd.cli.terminal import is_fancy, one_line

    if not is_fancy(sys.stderr):
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    with Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bars:
        task = bars.add_task("", total=1.0)
        yield lambda fraction, what: bars.update(
            task, completed=fraction, description=one_line(what)
        )


class Lines:
    """Progress without a terminal: a line for each new sentence and each further quarter."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def __call__(self, fraction: float, what: str) -> None:
        now = what, int(fraction * 4)
        if self._last is None or now[1] > self._last[1]:
            say(f"{what} ({now[1] * 25}%)")
        elif what != self._last[0]:
            say(what)
        self._last = now
