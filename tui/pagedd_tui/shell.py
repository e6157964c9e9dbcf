"""The dashboard: a worker folds what comes into plain data, one clock draws it, keys change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import anyio
from msgspec.structs import replace
from textual import events, work
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter, NoColor
from textual.widgets import Input

from pagedd.protocol import Event, State, Status
from pagedd_tui import keys
from pagedd_tui.ascii import ToAscii
from pagedd_tui.clock import Clock, Rate, steady
from pagedd_tui.dialogs import AskPriority, Confirm
from pagedd_tui.driver import PatientDriver
from pagedd_tui.events import EventList
from pagedd_tui.feed import Feed
from pagedd_tui.history import History
from pagedd_tui.inquiry import Inquiry
from pagedd_tui.legend import Legend
from pagedd_tui.lines import LinePanel, ScrollPanel
from pagedd_tui.looking import ARRANGED, Looking
from pagedd_tui.page_map import PageMap
from pagedd_tui.painter import Painter, Panels
from pagedd_tui.palette import Palette
from pagedd_tui.plain import plain
from pagedd_tui.requests import RequestTable
from pagedd_tui.ring import Ring
from pagedd_tui.shades import Darker
from pagedd_tui.source import LIVE, Item, Source

LIGHT = "light"  # the palette for light backgrounds
_ASK_HZ = 1.0
_TICK_HZ = 4.0  # at the least, however seldom the maps are drawn
_LONGEST_TEXT = 4000  # characters of an event
_AT_ONCE = 32  # items that are taken in before others have their turn


class Records(Protocol):
    """Where what comes is written too. ``problem``: why nothing more is, as a sentence."""

    problem: str

    def write(self, item: Item) -> None:
        """Keep ``item``."""


def calm(now: float) -> bool:
    """Nobody else wants the cores."""
    return False


class Shell(App[None]):
    """``map_hz``: how often the maps may be drawn; ``recorder`` is given every item.

    ``busy`` says at a time of ``clock`` whether other programs want the cores.
    """

    CSS_PATH = "top.tcss"
    TITLE = "pagedd top"

    def __init__(
        self,
        source: Source,
        *,
        palette: Palette,
        readonly: bool = False,
        ring_minutes: float = 5,
        map_hz: float = 10,
        recorder: Records | None = None,
        clock: Clock = steady,
        key_map: Mapping[str, str] | None = None,
        busy: Callable[[float], bool] = calm,
    ) -> None:
        self._ascii = ToAscii(enabled=palette.ascii)
        self._no_colour, self._darker = NoColor(), Darker()
        super().__init__(ansi_color=None if palette.coloured else True)
        self.source, self._clock, self._recorder = source, clock, recorder
        self.feed, self.ring = Feed(), Ring(ring_minutes)
        self.looking = Looking(palette)
        self.inquiry = Inquiry(source, self.feed)
        self.can_command = source.can_command and not readonly
        self.map_hz = map_hz
        self._busy = busy
        self._asks, self._asking = Rate(_ASK_HZ), False
        self._toned = (False, True)  # lost, and in colour, as the classes say
        self._soon = False  # a tick is on its way already
        self._key_map = {id: key for id, key in (key_map or {}).items() if id in keys.IDS}
        self.looking.keys = keys.mapped(self._key_map)

    def compose(self) -> ComposeResult:
        palette = self.looking.palette
        self.panels = Panels(
            header=LinePanel(id="header"),
            banner=LinePanel(id="banner"),
            device=PageMap(host=False, palette=palette, id="device"),
            host=PageMap(host=True, palette=palette, id="host"),
            requests=RequestTable(id="requests", ascii=palette.ascii),
            legend=Legend(id="legend"),
            glance=LinePanel(id="glance"),
            strip=History(palette=palette, id="strip", compact=True),
            history=History(palette=palette, id="history"),
            events=EventList(id="events"),
            detail=ScrollPanel(id="detail"),
            summary=LinePanel(id="summary"),
            footer=LinePanel(id="footer"),
        )
        panels = self.panels
        self.painter = Painter(
            panels, self.feed, self.ring, self.inquiry, self.looking, self.map_hz
        )
        yield panels.header
        yield panels.banner
        with Horizontal(id="body"):
            with Vertical(id="maps"):
                yield panels.device
                yield panels.host
            yield panels.requests
        yield panels.events
        yield panels.detail
        yield panels.summary
        yield panels.history
        yield panels.legend
        yield panels.glance
        yield panels.strip
        yield Input(id="filter", compact=True, placeholder="state:swapped owner:r41 pages:>8 word")
        yield panels.footer

    def on_mount(self) -> None:
        self.painter.title, self.painter.can_command = self.source.title, self.can_command
        self.panels.events.border_title = "events and their reasons"
        self.panels.history.border_title = "history"
        self.panels.glance.border_title = "at a glance"
        self.panels.detail.border_title = "one request"
        self.panels.detail.border_subtitle = "arrows scroll, esc: back"
        self.set_class(self.looking.palette.ascii, "bare")
        self.set_keymap(self._key_map)
        self.put_theme()
        self.arrange()
        self.feed.live = self.source.title == LIVE
        self.listen()
        self.keep_time()

    def get_driver_class(self) -> type[Driver]:
        """The one that sleeps, on a terminal."""
        chosen = super().get_driver_class()
        return PatientDriver if chosen is LinuxDriver else chosen

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, and those of the palette."""
        filters = list(super().get_line_filters())
        if not self.looking.palette.coloured:
            filters.append(self._no_colour)
        elif self.looking.palette.name == LIGHT:
            filters.append(self._darker)
        return [*filters, self._ascii] if self._ascii.enabled else filters

    @work(exclusive=True, group="feed")
    async def listen(self) -> None:
        """Take in what comes, and let others have their turn however much that is."""
        taken = 0
        async for item in self.source.items():
            self.take(item)
            taken += 1
            if taken % _AT_ONCE == 0:
                await anyio.sleep(0)

    @work(exclusive=True, group="time")
    async def keep_time(self) -> None:
        """The frame clock. It slows down with what it drives: a timer that only looks costs too."""
        while True:
            await anyio.sleep(max(1 / max(self.map_hz, _TICK_HZ), self.painter.least))
            self.tick()

    def take(self, item: Item) -> None:
        """One item: no message, nothing drawn."""
        now = self._clock()
        breaks = self.feed.num_breaks
        if isinstance(item, Event) and len(item.text) > _LONGEST_TEXT:
            item = replace(item, text=item.text[:_LONGEST_TEXT])  # thousands of them are kept
        self.feed.take(item, now)
        if isinstance(item, State | Event | Status):
            self.ring.add(item, now)
        elif self.feed.num_breaks != breaks and self.feed.breaks[-1].restarted:
            self.forget()
        if self._recorder is not None:
            self._record(self._recorder, item)

    def forget(self) -> None:
        """Another daemon: its requests have the same numbers, and are others."""
        self.inquiry.forget()
        if self.looking.subject is not None:
            self.looking.subject = None
            self.inquiry.look_at(None)
            self.arrange()
        if isinstance(self.screen, Confirm | AskPriority):
            self.screen.dismiss(None)

    def tick(self) -> None:
        """The frame clock: the one place from which the screen is filled."""
        now = self._clock()
        has_host = len(self.feed.model.host) > 0 or self.feed.model.frame == 0
        if has_host != self.looking.has_host:
            self.looking.has_host = has_host
            self.arrange()
        lost, coloured = self.feed.lost is not None, self.looking.palette.coloured
        if (lost, coloured) != self._toned:  # setting a class costs more than the rest of a tick
            self._toned = lost, coloured
            self.set_class(lost and coloured, "lost")
            self.set_class(lost and not coloured, "pale")
        self.painter.yield_to_others(self._busy(now))
        self.painter.paint(now)
        idle = not self._asking and self.feed.lost is None and self.feed.model.frame
        if idle and self.ring.live and self._asks.due(now):
            self._asking = True
            self.ask()

    def stir(self, *, pages: bool = False) -> None:
        """A key has changed what is looked at: it is seen at once, and many keys at one time."""
        self.painter.stir(pages=pages)
        if not self._soon:
            self._soon = True
            self.call_next(self._tick_soon)

    def _tick_soon(self) -> None:
        self._soon = False
        self.tick()

    @work(group="ask")
    async def ask(self) -> None:
        """Questions whose answers the next ticks show."""
        try:
            await self.inquiry.ask()
        finally:
            self._asking = False

    def on_resize(self, event: events.Resize) -> None:
        self.looking.size = (event.size.width, event.size.height)
        self.arrange()

    def arrange(self) -> None:
        """Show what there is room for, and put the focus where the keys should go."""
        looking = self.looking
        visible = looking.visible()
        self.set_class(looking.alone, "alone")
        self.set_class("maps" not in visible, "wide")
        for name in ARRANGED:
            self.query_one(f"#{name}").display = name in visible
        if not self.query_one("#filter", Input).display:
            focus = "detail" if looking.subject is not None else looking.panel
            self.set_focus(self.query_one(f"#{focus}") if focus in visible else None)
        self.stir(pages=True)
        self.call_after_refresh(self.stir, pages=True)  # what is shown anew has a size then

    def put_theme(self) -> None:
        if self.looking.palette.coloured:
            self.theme = "textual-light" if self.looking.palette.name == LIGHT else "textual-dark"
        else:
            self.theme = "ansi-dark"

    def _record(self, recorder: Records, item: Item) -> None:
        recorder.write(item)
        if recorder.problem:
            self._recorder = None
            self.notify(plain(recorder.problem, 400), severity="error", timeout=60, markup=False)
