"""Carries what is known to the panels: each at its rate, and only to those that are seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from pagedd.protocol import Counters, Event, Record, SequenceRow
from pagedd_tui.clock import Rate
from pagedd_tui.columns import Entry, first_waiting
from pagedd_tui.events import EventList
from pagedd_tui.feed import Feed
from pagedd_tui.footer import footer_line
from pagedd_tui.glance import glance_lines, reason_of
from pagedd_tui.header import banner_line, banner_text, header_line
from pagedd_tui.history import History
from pagedd_tui.inquiry import Inquiry
from pagedd_tui.keys import shown_for
from pagedd_tui.legend import Legend
from pagedd_tui.lines import LinePanel
from pagedd_tui.looking import Looking
from pagedd_tui.model import Model
from pagedd_tui.page_map import PageMap
from pagedd_tui.plain import plain
from pagedd_tui.requests import RequestTable
from pagedd_tui.ring import Ring
from pagedd_tui.story import Subject, story_lines
from pagedd_tui.summary import summary_lines

TABLE_HZ = 4.0
CHART_HZ = 2.0
EASED_S = 2.0  # from picture to picture while other programs want the cores
_MOST_HELD = 1200  # counters that wait for the charts to be live again


Sample = tuple[float, Counters, bool]  # when, what, and whether there is a gap before it


@dataclass(frozen=True, slots=True)
class Panels:
    """The widgets that are filled."""

    header: LinePanel
    banner: LinePanel
    device: PageMap
    host: PageMap
    requests: RequestTable
    legend: Legend
    glance: LinePanel
    strip: History
    history: History
    events: EventList
    detail: LinePanel
    summary: LinePanel
    footer: LinePanel


class Painter:
    """``paint`` is called by the frame clock. Nothing is drawn that is as it was."""

    def __init__(
        self,
        panels: Panels,
        feed: Feed,
        ring: Ring,
        inquiry: Inquiry,
        looking: Looking,
        map_hz: float,
    ) -> None:
        self._panels, self._feed, self._ring = panels, feed, ring
        self._inquiry, self._looking = inquiry, looking
        self._maps = Rate(map_hz)
        self._tables, self._charts = Rate(TABLE_HZ), Rate(CHART_HZ)
        self._held: deque[Sample] = deque(maxlen=_MOST_HELD)
        self._breaks = 0  # of the feed that the charts know of
        self._charted = 0  # the last frame that they have
        self._stirred = True
        self._painted: tuple[int, int] = (-1, -1)
        self._all_pages = True
        self._past: tuple[Model, int] | None = None  # the frame of the past that the maps show
        self._bright = False  # the maps show what the last frame has changed
        self.title = "live"
        self.can_command = False
        self.least = 0.0  # seconds from picture to picture, in any case

    def yield_to_others(self, busy: bool) -> None:
        """While other programs want the cores, draw less often; what a key asks for, at once."""
        self.least = EASED_S if busy else 0.0
        for rate in (self._maps, self._tables, self._charts):
            rate.least = self.least

    def stir(self, *, pages: bool = False) -> None:
        """Something else is to be shown: by the next tick; ``pages``: all of the maps too."""
        self._stirred = True
        self._all_pages = self._all_pages or pages
        self._tables.hurry()

    def paint(self, now: float) -> None:
        """Bring the screen up to what is known."""
        # before the first frame there is nothing to draw, and no turn to take
        due = self._all_pages or (self._feed.model.frame and self._maps.due(now))
        if due and not self._looking.tiny:
            self._paint_maps(now)
        if self._tables.due(now):
            self._paint_tables(now)
        if self._charts.due(now):
            self._paint_charts()

    def model(self) -> Model:
        """The picture that is shown: the newest, or one of the past."""
        return self._feed.model if self._ring.live else self._ring.model_at()

    def _paint_maps(self, now: float) -> None:
        panels, live, unseen = self._panels, self._ring.live, self._feed.unseen
        if not (panels.device.display or panels.host.display):
            return
        model = self.model()
        if not self._fresh(model):
            unseen.take()
            device = host = None
        elif live and (unseen.pages or unseen.host_pages or self._bright):
            seen = unseen.take()
            device, host = tuple(seen.pages), tuple(seen.host_pages)
        else:
            return
        self._bright = bool(device is None or device or host)
        self._all_pages = False
        panels.device.show(model.pages, model.rows, device, now)
        panels.host.show(model.host, model.rows, host, now)
        self._past = None if live else (model, model.frame)
        self._select()

    def _paint_map_words(self) -> None:
        """The legend, and what is under the cursor of the map that has the keys."""
        panels, palette = self._panels, self._looking.palette
        shown = [each for each in (panels.device, panels.host) if each.display]
        several = any(each.pages_per_cell > 1 for each in shown)
        panels.legend.show(palette, panels.device.colour_by, several=several)
        for page_map in shown:
            said = plain(page_map.describe_cursor(), 300) if page_map.has_focus else ""
            if said != str(page_map.border_subtitle or ""):
                page_map.border_subtitle = Content(said)

    def _paint_charts(self) -> None:
        """Charts stand still while the rest is frozen; what they miss they are given later."""
        model, feed = self._feed.model, self._feed
        if model.frame and model.frame != self._charted:
            gap = feed.num_breaks != self._breaks
            self._charted, self._breaks = model.frame, feed.num_breaks
            self._held.append((model.at, model.counters, gap))
        if self._ring.live:
            while self._held:
                sample = self._held.popleft()
                self._panels.strip.add(*sample)
                self._panels.history.add(*sample)

    def _paint_tables(self, now: float) -> None:
        feed, panels, looking = self._feed, self._panels, self._looking
        model, live = self.model(), self._ring.live
        waits = live and feed.lost is None and any(map(_waits, model.rows.values()))
        version = feed.version, self._inquiry.version
        told = feed.lost is not None or feed.silence(now) > 0  # for how long, second by second
        if not (self._stirred or waits or version != self._painted or told):
            return
        self._stirred, self._painted = False, version
        at = feed.there(now) if live else model.at
        text = banner_text(feed, self._ring, now, shown_for("freeze", self._looking.keys))
        panels.banner.display = bool(text)
        panels.banner.set_lines([banner_line(text, panels.banner.size.width)])
        next_row, reason = self._next(model)
        entries = [
            Entry(row, feed.waits.seconds(row, at))
            for row in model.rows.values()
            if looking.filter.matches(row)
        ]
        if looking.tiny:
            self._paint_summary(model, entries, next_row, reason, text)
            return
        self._paint_frame(model, now)
        if panels.requests.display or looking.subject is None:
            key = None if next_row is None else (next_row.handle, next_row.index)
            panels.requests.show(entries, len(model.rows), key)
            self._entitle_requests(len(model.rows))
            if self._fresh(model):
                self._select()
        if panels.legend.display and self._fresh(model):
            self._paint_map_words()
        if panels.glance.display:
            width, height = panels.glance.size
            mark = "*" if looking.palette.ascii else "»"
            panels.glance.set_lines(glance_lines(model, next_row, reason, mark, width, height))
        if panels.events.display:
            panels.events.show(self._events(), looking.filter)
        if looking.subject is not None:
            self._paint_detail(model, looking.subject, at)

    def _paint_frame(self, model: Model, now: float) -> None:
        panels, looking = self._panels, self._looking
        dot = "*" if looking.palette.ascii else "●"
        width = panels.header.size.width
        panels.header.set_lines([header_line(self._feed, model, self.title, now, width, dot)])
        width = panels.footer.size.width
        playing = self.title.split()[0] if self._ring.live else "frozen"  # live, replay, demo
        panels.footer.set_lines([footer_line(looking, playing, self.can_command, width)])

    def _paint_summary(
        self,
        model: Model,
        entries: list[Entry],
        next_row: SequenceRow | None,
        reason: Record | None,
        text: str,
    ) -> None:
        panel = self._panels.summary
        entries.sort(key=_most_pages)
        lines = summary_lines(model, entries, next_row, reason, panel.size.width)
        panel.set_lines([banner_line(text, panel.size.width), *lines] if text else lines)

    def _paint_detail(self, model: Model, handle: int, at: float) -> None:
        panel, inquiry = self._panels.detail, self._inquiry
        if not panel.size.width:
            return  # shown a moment ago, and not laid out yet
        rows = tuple(row for row in model.rows.values() if row.handle == handle)
        known = inquiry.subject == handle and self._ring.live
        subject = Subject(
            handle=handle,
            name=self._looking.name,
            rows=rows,
            waited=self._feed.waits.seconds(rows[0], at) if rows else 0.0,
            explanation=inquiry.explanation if known else None,
            events=tuple(each for each in self._events() if each.handle == handle),
            seen=tuple(self._feed.life(handle, at)),
            now=at,
            note=inquiry.note if known else "its page table is known for the present alone",
        )
        panel.set_lines(story_lines(subject, model, self._looking.palette, panel.size.width))

    def _next(self, model: Model) -> tuple[SequenceRow | None, Record | None]:
        """The first of the queue, and why it waits."""
        if self._ring.live:
            row = self._inquiry.next_row()
            told = row is not None and row.handle == self._inquiry.named
            return row, self._inquiry.reason if told else None
        for event in reversed(self._ring.events()):
            if event.kind == "waiting" and isinstance(event.handle, int):
                key = first_waiting(model.rows, event.handle)
                row = None if key is None else model.rows[key]
                told = row is not None and row.handle == event.handle
                return row, reason_of([event], event.handle, event.index) if told else None
        key = first_waiting(model.rows, None)
        return (None if key is None else model.rows[key]), None

    def _events(self) -> Sequence[Event]:
        return self._feed.events if self._ring.live else self._ring.events()

    def _fresh(self, model: Model) -> bool:
        """Whether the maps know these very pages, but for changes: there may be more by now."""
        if self._all_pages:
            return False
        if self._ring.live:
            return self._past is None and not self._feed.unseen.everything
        return self._past is not None and self._past == (model, model.frame)

    def _select(self) -> None:
        for panel in (self._panels.device, self._panels.host):
            panel.select(self._panels.requests.chosen)

    def _entitle_requests(self, total: int) -> None:
        table, text = self._panels.requests, self._looking.filter.text
        bar = " | " if self._looking.palette.ascii else " · "
        count = f"{table.count} of {total}" if text else str(total)
        requests = len({handle for handle, _ in self.model().rows})
        of = "" if requests == total else f" of {requests} requests"
        title = f"sequences {count}{of}{bar}by {table.sort}{' reversed' if table.reverse else ''}"
        if text:
            title += f"{bar}/{text}"
        if str(table.border_title or "") != title:
            table.border_title = Content(title)


def _waits(row: SequenceRow) -> bool:
    return row.state not in ("decoding", "prefilling")


def _most_pages(entry: Entry) -> int:
    return -entry.row.pages
