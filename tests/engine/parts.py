"""Small parts that the tests of the engine share."""

from __future__ import annotations

from pagedd.core.events import HostPageCounts, PageCounts, Stats

NO_HOST_PAGES = HostPageCounts(0, 0, 0, 0)
NO_STATS = Stats(0, 0, 0, PageCounts(4, 4, 0, 0, 0), NO_HOST_PAGES, *[0] * 17)
