"""View 5: what was decided, when, about whom, and the reason as a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice, takewhile
from operator import is_not
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from pagedd.protocol import Event
from pagedd_tui import tones
from pagedd_tui.clock import time_of_day
from pagedd_tui.filter import Filter
from pagedd_tui.lines import LinePanel
from pagedd_tui.plain import Line, fold, line, pad, plain

_TIME, _KIND, _NAME = 11, 14, 12
_COLUMN = _TIME + _KIND + _NAME


class EventList(LinePanel, can_focus=True):
    """The latest at the bottom; whoever scrolls up stays where they are until they are back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "back(1)", show=False),
        Binding("down,j", "back(-1)", show=False),
        Binding("pageup", "back_page(1)", show=False),
        Binding("pagedown", "back_page(-1)", show=False),
        Binding("home", "back(1000000)", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.behind = 0  # events between the last one that is seen and the latest
        self._events: list[Event] = []

    def show(self, found: Iterable[Event], chosen: Filter) -> None:
        """Those that the filter lets through. The last one that is seen stays where it is."""
        last = self._events[-1 - self.behind] if self.behind else None
        self._events = [event for event in found if not chosen.text or chosen.tells(event)]
        if last is not None:
            newer = takewhile(partial(is_not, last), reversed(self._events))
            self.behind = sum(1 for _ in newer)
        self._move(0)

    def action_back(self, count: int) -> None:
        """Earlier ones, or later ones."""
        self._move(count)

    def action_back_page(self, count: int) -> None:
        """A page earlier, or later."""
        self._move(count * max(self.size.height // 2, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._move(-3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._move(3)

    def on_resize(self, event: events.Resize) -> None:
        self._move(0)

    def _move(self, count: int) -> None:
        self.behind = max(0, min(self.behind + count, len(self._events) - 1))
        self._draw(self._window())

    def _window(self) -> list[Line]:
        width, height = self.size.width, self.size.height
        if not self._events:
            return [line(("no event yet", tones.DIM))][:height]
        lines: list[Line] = []
        end = len(self._events) - self.behind
        for event in islice(reversed(self._events), len(self._events) - end, None):
            lines = [*event_lines(event, width), *lines]
            if len(lines) >= height:
                break
        return lines[max(len(lines) - height, 0) :]


def event_lines(event: Event, width: int) -> list[Line]:
    """The time, the kind, the request, and the sentence beside them, folded below itself."""
    kind = plain(event.kind, _KIND - 1)
    name = plain(event.request, _NAME - 1) if isinstance(event.request, str) else ""
    style = tones.KINDS.get(event.kind, tones.TEXT)
    if width < _COLUMN + 20:
        head = line(
            (f"{time_of_day(event.at)} ", tones.DIM), (kind, style), (f" {name}", tones.TEXT)
        )
        return [head, *(line((f"  {text}", tones.TEXT)) for text in _said(event, width - 2))]
    first, *more = _said(event, width - _COLUMN)
    head = line(
        (pad(time_of_day(event.at), _TIME), tones.DIM),
        (pad(kind, _KIND), style),
        (pad(name, _NAME), tones.STRONG),
        (first, tones.TEXT),
    )
    return [head, *(line((" " * _COLUMN + text, tones.TEXT)) for text in more)]


def _said(event: Event, width: int) -> list[str]:
    return fold(plain(event.text, 1200), width, 8)
