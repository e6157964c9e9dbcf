"""The ``events`` feed: the journal, read by every subscriber at its own pace.

A subscriber that lags costs nothing but its place: its events wait in the journal, where they are
kept for everybody. So a feed never fills an outbox, and never costs a client its requests; what
the journal has dropped by the time that the client reads on is told as ``missed``. Between two of
those comes a run of events, and not one at a time as the client makes room for it.
"""

from __future__ import annotations

from collections.abc import Callable

from pagedd.server.journal import Journal
from pagedd.server.outbox import Outbox
from pagedd.server.records import event_of, missed


class Subscription:
    """One client's place in the journal."""

    def __init__(self, journal: Journal, outbox: Outbox, history: int) -> None:
        self._journal = journal
        self._outbox = outbox
        self._next = max(journal.end - history, journal.start)
        self._behind = False  # there was no room for all that it should have had

    def send(self, now: float) -> None:
        """Put what is new into the outbox, while that is less than half full.

        What stopped there goes on when it is less than a quarter full.
        """
        journal, outbox = self._journal, self._outbox
        lost = journal.start - self._next
        if (self._behind or lost > 0) and not outbox.nearly_empty:
            return
        if lost > 0:
            outbox.put(missed(lost, now))
            self._next = journal.start
        while self._next < journal.end and outbox.has_room:
            outbox.put(event_of(journal[self._next]))
            self._next += 1
        self._behind = self._next < journal.end


class EventFeed:
    """Owns the subscriptions, one a client. ``clock``: seconds since 1970."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._clock = clock
        self._subscriptions: dict[Outbox, Subscription] = {}

    def subscribe(self, outbox: Outbox, history: int) -> None:
        """Send the last ``history`` events, and then what comes. Nothing if it does so already."""
        if outbox not in self._subscriptions:
            self._subscriptions[outbox] = Subscription(self._journal, outbox, history)
            self.resume(outbox)

    def unsubscribe(self, outbox: Outbox) -> None:
        """Send no more."""
        self._subscriptions.pop(outbox, None)

    def publish(self) -> None:
        """The journal has grown."""
        if self._subscriptions:
            now = self._clock()
            for subscription in self._subscriptions.values():
                subscription.send(now)

    def resume(self, outbox: Outbox) -> None:
        """The outbox has room again."""
        subscription = self._subscriptions.get(outbox)
        if subscription is not None:
            subscription.send(self._clock())
