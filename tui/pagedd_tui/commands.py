"""Keys that do something outside: end a request, change its priority, write files."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pagedd.errors import PageddError
from pagedd.protocol import SequenceRow
from pagedd_tui.dialogs import AskPriority, Confirm
from pagedd_tui.plain import plain

if TYPE_CHECKING:
    from pagedd_tui.app import Dashboard


def ask_cancel(app: Dashboard) -> None:
    """End the request that is looked at, if the answer is yes."""
    row = _subject(app)
    if row is None:
        return
    name = f"{plain(row.id, 40)} (#{row.handle})"

    def answered(yes: bool | None) -> None:
        if yes:
            work = app.source.cancel(row.handle)
            app.run_worker(_tell(app, work, f"{name} is cancelled"), group="command")

    app.push_screen(Confirm(f"End {name}? It has generated {row.generated} tokens."), answered)


def ask_priority(app: Dashboard) -> None:
    """Give the request that is looked at another priority."""
    row = _subject(app)
    if row is None:
        return
    name = f"{plain(row.id, 40)} (#{row.handle})"

    def answered(priority: int | None) -> None:
        if priority is not None and priority != row.priority:
            work = app.source.reprioritize(row.handle, priority)
            app.run_worker(_tell(app, work, f"{name} has priority {priority}"), group="command")

    question = f"Priority of {name}; a smaller one is more urgent."
    app.push_screen(AskPriority(question, row.priority), answered)


def _subject(app: Dashboard) -> SequenceRow | None:
    """The request that is shown alone, else the chosen one of the table. It must be open now."""
    rows, handle = app.feed.model.rows, app.looking.subject
    if handle is None and app.panels.requests.chosen is not None:
        handle = app.panels.requests.chosen[0]
    found = next((row for row in rows.values() if row.handle == handle), None)
    if found is None:
        app.notify("no open request is chosen", severity="warning", markup=False)
    return found


async def _tell(app: Dashboard, work: Awaitable[None], done: str) -> None:
    try:
        await work
    except PageddError as error:
        app.notify(plain(error.message, 400), severity="error", markup=False)
    else:
        app.notify(done, markup=False)


def export(app: Dashboard) -> None:
    """Write the picture that is shown as JSON and the screen as SVG."""
    app.notify("not yet")
