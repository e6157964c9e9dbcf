"""The dashboard's keys: each changes what is looked at, and the next tick shows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import ClassVar, TextIO

from textual import events
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Input

from pagedd.errors import UsageError
from pagedd_tui import keys
from pagedd_tui.cells import RowKey
from pagedd_tui.commands import ask_cancel, ask_priority, export
from pagedd_tui.dialogs import LEAVE, Commands
from pagedd_tui.filter import EVERYTHING, Filter
from pagedd_tui.help import Help
from pagedd_tui.live import LiveSource
from pagedd_tui.page_map import PageMap
from pagedd_tui.painter import EASED_S
from pagedd_tui.palette import Palette, choose, following
from pagedd_tui.plain import plain
from pagedd_tui.requests import RequestTable
from pagedd_tui.shell import Records, Shell
from pagedd_tui.source import Source
from pagedd_tui.yielding import Busy, step_back

MAP_HZ = 10.0
MAP_HZ_SSH = 4.0  # every frame costs bytes there


class Dashboard(Shell):
    """``pagedd top``."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(), LEAVE]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every key has its entry in the command palette."""
        for key in keys.permitted(self.looking.keys, self.can_command):
            if key.action and key.id != "palette":
                yield SystemCommand(key.help, f"key {key.shown}", self._runs(key.action))

    def on_request_table_opened(self, event: RequestTable.Opened) -> None:
        self.action_open()

    def on_request_table_moved(self, event: RequestTable.Moved) -> None:
        self.stir()

    def on_request_table_sorted(self, event: RequestTable.Sorted) -> None:
        self.stir()

    def on_page_map_cursor_moved(self, event: PageMap.CursorMoved) -> None:
        self.stir()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.looking.filter = Filter.parse(event.value)
            self.stir()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            if self.looking.filter.problem:
                self.notify(self.looking.filter.problem, severity="warning", markup=False)
            self._close_filter()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        name = event.widget.id or ""
        if name in self.looking.panels:
            self.looking.panel = name

    def action_command_palette(self) -> None:
        """Without an id: while the last one is on its way out, Textual fails on a second."""
        if not isinstance(self.screen, Commands):
            self.push_screen(Commands())

    def action_help(self) -> None:
        mark = "*" if self.looking.palette.ascii else "»"
        shown = keys.permitted(self.looking.keys, self.can_command)
        self.push_screen(Help(self.looking.palette, shown, mark))

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.value = self.looking.filter.text
        self.screen.set_focus(field)  # now: the next key may have been typed already

    def action_sort(self) -> None:
        self.panels.requests.cycle_sort()

    def action_reverse(self) -> None:
        self.panels.requests.turn()

    def action_open(self) -> None:
        chosen = self.panels.requests.chosen
        if self.looking.panel in ("device", "host") and self.looking.subject is None:
            chosen = self._owner_at_cursor() or chosen
        row = None if chosen is None else self.painter.model().rows.get(chosen)
        if row is not None:
            self.looking.subject, self.looking.name = row.handle, plain(row.id, 40)
            self._look_at(row.handle)

    def action_leave(self) -> None:
        if self.query_one("#filter", Input).display:
            self._drop_filter()
            self._close_filter()
        elif self.looking.subject is not None:
            self.looking.subject = None
            self._look_at(None)
        elif self.looking.filter.text:
            self._drop_filter()
        elif self.looking.maximised:
            self.action_maximise()

    def action_freeze(self) -> None:
        if self.ring.live:
            self.ring.hold()
            self.stir(pages=True)
        else:
            self.action_live()

    def action_live(self) -> None:
        self.ring.end()
        self.stir(pages=True)

    def action_step(self, frames: int) -> None:
        self.ring.step(frames)
        self.stir(pages=True)

    def action_seek(self, seconds: float) -> None:
        self.ring.seek(seconds)
        self.stir(pages=True)

    def action_colour(self) -> None:
        for page_map in (self.panels.device, self.panels.host):
            page_map.cycle_colour()
        self.stir()

    def action_zoom(self, delta: int) -> None:
        """Pages of a map, or the time of the charts."""
        panels = self.panels
        match self.looking.panel:
            case "host":
                panels.host.zoom(delta)
            case "history":
                panels.history.zoom(delta)
            case _:
                panels.device.zoom(delta)

    def action_view(self, number: int) -> None:
        self.looking.go(number)
        self._look_at(None)

    def action_panel(self, count: int) -> None:
        self.looking.turn(count)
        self.arrange()

    def action_maximise(self) -> None:
        self.looking.maximised = not self.looking.maximised
        self.arrange()

    def action_theme(self) -> None:
        self.looking.palette = palette = choose(
            following(self.looking.palette.name),
            ascii=self.looking.palette.ascii,
            no_color=self.no_color,
        )
        panels = self.panels
        for panel in (panels.device, panels.host, panels.strip, panels.history):
            panel.palette = palette
        self.put_theme()
        self.stir(pages=True)
        self.notify(f"palette {palette.name}", timeout=2, markup=False)

    def action_export(self) -> None:
        export(self)

    def action_cancel(self) -> None:
        ask_cancel(self)

    def action_priority(self) -> None:
        ask_priority(self)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that command are absent where nothing may be commanded."""
        return self.can_command or action not in ("cancel", "priority")

    def _look_at(self, handle: int | None) -> None:
        self.inquiry.look_at(handle)
        self._asks.hurry()
        self.panels.detail.top = 0
        self.arrange()

    def _owner_at_cursor(self) -> RowKey | None:
        return self.panels.device.owner_at_cursor() if self.looking.panel == "device" else None

    def _drop_filter(self) -> None:
        self.looking.filter = EVERYTHING
        self.query_one("#filter", Input).value = ""
        self.stir()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.arrange()

    def _runs(self, action: str) -> Callable[[], Awaitable[object]]:
        return partial(self.run_action, action)


def run_top(
    source: Source,
    *,
    palette: Palette,
    readonly: bool = False,
    ring_minutes: float = 5,
    map_hz: float | None = None,
    recorder: Records | None = None,
    key_map: Mapping[str, str] | None = None,
) -> int:
    """Show ``source`` until the person has seen enough; the exit code. ``map_hz`` None: as fits.

    Raises UsageError where nobody could see it.
    """
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        raise UsageError(
            "this is no terminal, and top draws on one; as lines: pagedd status --watch --json"
        )
    if map_hz is None:
        map_hz = MAP_HZ_SSH if os.environ.get("SSH_CONNECTION") else MAP_HZ
    step_back()
    if sys.__stderr__ is None:
        raise UsageError("standard error is closed, and top draws on it")
    if not _is_terminal(sys.__stderr__):  # where Textual draws
        os.dup2(sys.stdout.fileno(), sys.__stderr__.fileno())
    app = Dashboard(
        source,
        palette=palette,
        readonly=readonly,
        ring_minutes=ring_minutes,
        map_hz=map_hz,
        recorder=recorder,
        key_map=key_map,
        busy=_yielding(source, recorded=recorder is not None),
    )
    app.run()
    return app.return_code or 0


def _yielding(source: Source, *, recorded: bool) -> Callable[[float], bool]:
    """Whether other programs want the cores; then a daemon is asked for fewer frames too.

    Not where they are recorded: whoever asks for a recording wants all of it.
    """
    watch = Busy()
    if recorded or not isinstance(source, LiveSource):
        return watch.look
    hz = source.hz

    def look(now: float) -> bool:
        busy = watch.look(now)
        source.hz = min(hz, 1 / EASED_S) if busy else hz
        return busy

    return look


def _is_terminal(stream: TextIO | None) -> bool:
    """A stream that is closed, or that there is not, is none."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
