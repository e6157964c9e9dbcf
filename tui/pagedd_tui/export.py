"""The picture as JSON, for programs: what key ``e`` writes beside the screen."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pagedd.protocol import Event, HostPageCounts, PageCounts, State
from pagedd_tui.model import Model


class Picture(msgspec.Struct, frozen=True):
    """``state`` is a keyframe and ``events`` are frames as in ``pagedd-protocol.7``."""

    pages: PageCounts
    host_pages: HostPageCounts
    state: State
    events: list[Event]


def picture_json(model: Model, events: Iterable[Event]) -> bytes:
    """One line of JSON; what clients have named is escaped as JSON asks."""
    free, owned, shared, cached = model.pages.counts
    host_free, swapped, _, host_cached = model.host.counts
    picture = Picture(
        pages=PageCounts(len(model.pages), free, cached, owned, shared),
        host_pages=HostPageCounts(len(model.host), host_free, swapped, host_cached),
        state=model.keyframe(),
        events=list(events),
    )
    return msgspec.json.encode(picture) + b"\n"
