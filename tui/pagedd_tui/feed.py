"""Everything the source has told, folded into plain data that the frame clock reads."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from pagedd.protocol import Event, Hello, SequenceRow, State, Status
from pagedd_tui.cells import RowKey
from pagedd_tui.model import BrokenFrame, Changed, Model
from pagedd_tui.source import Ended, Item, Lost

MOST_EVENTS = 5000
WAITS = frozenset(("waiting", "swapped", "preempted"))
SILENT_S = 5.0  # a daemon says how it is each second
_MOST_SENT = 20_000
_MOST_LIVES = 2000
_MOST_SPANS = 400  # of one request


@dataclass(frozen=True, slots=True)
class Break:
    """The feed was interrupted at ``at``; ``restarted``: by another daemon, with other pages."""

    at: float
    restarted: bool


class Unseen:
    """Pages that changed since the screen was last told of them; ``everything``: all of them."""

    def __init__(self) -> None:
        self.everything = True
        self.pages: set[int] = set()
        self.host_pages: set[int] = set()

    def add(self, changed: Changed) -> None:
        """Note what a frame has changed."""
        if changed.key:
            self.everything = True
        elif not self.everything:
            self.pages.update(changed.pages)
            self.host_pages.update(changed.host_pages)

    def take(self) -> Unseen:
        """What there is; then it has been seen."""
        seen = Unseen()
        seen.everything, seen.pages, seen.host_pages = self.everything, self.pages, self.host_pages
        self.everything, self.pages, self.host_pages = False, set(), set()
        return seen


class Waits:
    """Since when requests wait. A row says how long they did when it was sent, not when that was.

    Found again by what the row says, so that an old picture's rows have their times too.
    """

    def __init__(self) -> None:
        self._sent: OrderedDict[tuple[int, int, float], float] = OrderedDict()

    def note(self, row: SequenceRow, at: float) -> None:
        """``row`` was sent at ``at``."""
        if row.state in WAITS:
            self._sent.setdefault((row.handle, row.index, row.waiting_ms), at)
            if len(self._sent) > _MOST_SENT:
                self._sent.popitem(last=False)

    def seconds(self, row: SequenceRow, at: float) -> float:
        """How long a request has waited at ``at``, all its waits together."""
        waited = row.waiting_ms / 1000
        if row.state not in WAITS:
            return waited
        sent = self._sent.get((row.handle, row.index, row.waiting_ms), at)
        return waited + max(at - sent, 0.0)


class Feed:
    """What is known now. ``version`` is raised by whatever a screen could show differently."""

    def __init__(self) -> None:
        self.model = Model()
        self.hello: Hello | None = None
        self.status: Status | None = None
        self.status_at = 0.0
        self.live = False  # a daemon tells of this moment
        self.lost: Lost | None = None
        self.lost_at = 0.0
        self.ended: Ended | None = None
        self.breaks: deque[Break] = deque(maxlen=100)
        self.num_breaks = 0  # ever
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self.first_waiting: Event | None = None  # the latest about the first of the queue
        self.version = 0
        self.received = 0.0  # when the model's last frame came
        self.unseen = Unseen()
        self.waits = Waits()
        # (when, state): how the first choice of a request went on, as far as it was seen
        self.lives: OrderedDict[RowKey, list[tuple[float, str]]] = OrderedDict()

    def take(self, item: Item, now: float) -> bool:
        """Fold ``item`` in. Whether it is a frame that the recording ring should keep."""
        self.version += 1
        match item:
            case State():
                return self._frame(item, now)
            case Event():
                self._event(item)
            case Status():
                self.status, self.status_at = item, now
            case Hello():
                self._hello(item, now)
            case Lost():
                if self.lost is None:
                    self._break(now, restarted=False)
                self.lost, self.lost_at = item, now
            case Ended():
                self.ended = item
        return False

    def there(self, now: float) -> float:
        """The time by the clock of the daemon, whose frames are of ``at``."""
        if self.lost is not None or self.ended is not None:
            return self.model.at
        return self.model.at + max(now - self.received, 0.0)

    def silence(self, now: float) -> float:
        """Seconds that a daemon that should say something has said nothing, if that is long."""
        waits = self.live and self.status is not None and self.lost is None and self.ended is None
        silent = now - max(self.status_at, self.received) if waits else 0.0
        return silent if silent > SILENT_S else 0.0

    def life(self, handle: int, until: float) -> list[tuple[float, str]]:
        """The states that a request went through, of its first choice that was seen."""
        key = next((key for key in self.lives if key[0] == handle), None)
        return [] if key is None else [each for each in self.lives[key] if each[0] <= until]

    def _frame(self, frame: State, now: float) -> bool:
        try:
            changed = self.model.take(frame)
        except BrokenFrame:
            return False  # the source asks for a keyframe; until it comes this picture stands
        self.received = now
        self.unseen.add(changed)
        for row in frame.sequences:
            self.waits.note(row, frame.at)
            self._live((row.handle, row.index), frame.at, row.state)
        return True

    def _live(self, key: RowKey, at: float, state: str) -> None:
        spans = self.lives.setdefault(key, [])
        if not spans or spans[-1][1] != state:
            if len(spans) < _MOST_SPANS:
                spans.append((at, state))
            self.lives.move_to_end(key)
            if len(self.lives) > _MOST_LIVES:
                self.lives.popitem(last=False)

    def _event(self, event: Event) -> None:
        self.events.append(event)
        if event.kind == "waiting":
            self.first_waiting = event

    def _break(self, now: float, *, restarted: bool) -> None:
        self.breaks.append(Break(now, restarted))
        self.num_breaks += 1

    def _hello(self, hello: Hello, now: float) -> None:
        before = self.hello
        self.hello, self.lost, self.ended = hello, None, None
        if before is None or before.boot_id == hello.boot_id:
            return
        # Another daemon: none of the old one's pages and requests are there.
        self._break(now, restarted=True)
        self.model = Model()
        self.status = self.first_waiting = None
        self.lives.clear()
        self.unseen.everything = True
