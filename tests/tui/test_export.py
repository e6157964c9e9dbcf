"""The picture as JSON."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given

from pagedd.protocol import Event
from pagedd_tui.export import Picture, picture_json
from pagedd_tui.model import Model
from tests.tui.truth import STEPS, Step, history


@given(STEPS)
def test_it_is_the_whole_picture(steps: list[Step]) -> None:
    truth, frames = history(steps)
    model = Model()
    for frame in frames:
        model.take(frame)
    event = Event(at=1.0, kind="evicted", text="\x1b]52;c;AAAA\x07 [red]\n.", request="\x00r")
    data = picture_json(model, [event])
    picture = msgspec.json.decode(data, type=Picture)
    assert picture.state == truth.whole()
    assert picture.events == [event]
    pages, host = picture.pages, picture.host_pages
    assert pages.free + pages.owned + pages.shared + pages.cached == pages.total
    assert host.free + host.swapped + host.cached <= host.total
    assert pages.owned == truth.states.count(1)
    assert host.swapped == truth.host.count(1)
    assert not set(data[:-1]) & set(range(32)), "no control byte"


def test_before_the_first_frame_there_is_nothing() -> None:
    empty = json.loads(picture_json(Model(), []))
    assert empty["pages"]["total"] == 0
    assert empty["state"]["sequences"] == []
