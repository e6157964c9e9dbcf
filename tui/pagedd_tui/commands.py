"""Keys that do something outside: end a request, change its priority, write files."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pagedd.errors import PageddError
from pagedd.protocol import SequenceRow
from pagedd_tui.dialogs import AskPriority, Confirm
from pagedd_tui.export import picture_json
from pagedd_tui.plain import plain

if TYPE_CHECKING:
    from pagedd_tui.app import Dashboard

_MOST_FILES = 100


def ask_cancel(app: Dashboard) -> None:
    """End the request that is looked at, if the answer is yes."""
    row = _subject(app)
    if row is None:
        return
    name, boot = f"{plain(row.id, 40)} (#{row.handle})", _boot(app)

    def answered(yes: bool | None) -> None:
        if yes and _is_same(app, boot):
            work = app.source.cancel(row.handle)
            app.run_worker(_tell(app, work, f"{name} is cancelled"), group="command")

    app.push_screen(Confirm(f"End {name}? It has generated {row.generated} tokens."), answered)


def ask_priority(app: Dashboard) -> None:
    """Give the request that is looked at another priority."""
    row = _subject(app)
    if row is None:
        return
    name, boot = f"{plain(row.id, 40)} (#{row.handle})", _boot(app)

    def answered(priority: int | None) -> None:
        if priority is not None and priority != row.priority and _is_same(app, boot):
            work = app.source.reprioritize(row.handle, priority)
            app.run_worker(_tell(app, work, f"{name} has priority {priority}"), group="command")

    question = f"Priority of {name}; a smaller one is more urgent."
    app.push_screen(AskPriority(question, row.priority), answered)


def _boot(app: Dashboard) -> str | None:
    return None if app.feed.hello is None else app.feed.hello.boot_id


def _is_same(app: Dashboard, boot: str | None) -> bool:
    """Whether the daemon is still the one that was asked about: another counts its own requests."""
    same = _boot(app) == boot
    if not same:
        app.notify("the daemon has restarted; nothing was done", severity="error", markup=False)
    return same


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
    """Write the picture that is shown as JSON, and the screen as SVG, where the command was run."""
    events = app.feed.events if app.ring.live else app.ring.events()
    json = picture_json(app.painter.model(), events)
    svg = app.export_screenshot(title=app.TITLE).encode()
    try:
        path = _written({".json": json, ".svg": svg})
    except OSError as error:
        said = f"the picture could not be written here: {error.strerror or error}"
        app.notify(plain(said, 400), severity="error", markup=False)
    else:
        app.notify(f"written: {plain(path)}.json and .svg", timeout=8, markup=False)


def _written(files: Mapping[str, bytes]) -> Path:
    """New files, alike but for their suffix and named by the time; nothing is written over."""
    begin = time.strftime("pagedd-top-%Y%m%d-%H%M%S")
    for i in range(1, _MOST_FILES):
        path = Path.cwd() / (f"{begin}-{i}" if i > 1 else begin)
        if any(path.with_suffix(suffix).exists() for suffix in files):
            continue
        for suffix, data in files.items():
            with open(path.with_suffix(suffix), "xb", opener=_private) as file:
                file.write(data)
        return path
    raise OSError(f"there are {_MOST_FILES} files of this second already")


def _private(path: str, flags: int) -> int:
    """Ids and reasons are for the eyes of this user."""
    return os.open(path, flags, 0o600)
