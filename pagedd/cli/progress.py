"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pagedd.cli.terminal import is_fancy, one_line, say

Progress = Callable[[float, str], None]


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A function (fraction, what) that draws a bar on a terminal and plain lines elsewhere."""
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
    """Progress without a terminal: a line for each new task and each further quarter of it.

    Sentences that differ in their numbers alone are about the same task.
    """

    def __init__(self) -> None:
        self._task = ""
        self._quarter = 0

    def __call__(self, fraction: float, what: str) -> None:
        task, quarter = re.sub(r"\d+", "", what), int(fraction * 4)
        if task != self._task or quarter > self._quarter:
            say(f"{what} ({fraction:.0%})")
        self._task, self._quarter = task, quarter
