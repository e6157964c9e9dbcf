"""The three answers in words: what they say is what the rest of the screen shows."""

from __future__ import annotations

from typing import Any

from pagedd.protocol import Record
from pagedd_tui.glance import most_pages, why_next
from pagedd_tui.model import Model
from tests.tui.fake_source import keyframe, row


def waiting(**more: Any) -> Record:
    facts = {"limit": "pages", "needed": 14, "available": 1, "short": 13, "headroom": 10}
    return Record(at=1.0, kind="waiting", text="as it was when it was asked", **(facts | more))


def picture() -> Model:
    model = Model()
    rows = [
        row(1, pages=5),
        row(2, pages=3),
        row(3, "swapped", pages=4),
        row(4, "waiting", pages=0),
    ]
    cells = [1] * 5 + [2] * 3 + [3] * 2 + [0]
    owners = [1] * 5 + [2] * 3 + [0] * 3
    model.take(keyframe(1, cells, rows, owners=owners))
    return model


def test_what_there_is_and_who_has_it_is_that_of_the_picture() -> None:
    model = picture()
    said = why_next(model, model.rows[3, 0], waiting())
    assert "(swapped) waits for pages: it needs 4, and 10 more are to stay available" in said
    assert "3 are available (1 free, 2 cached)" in said
    first, second = (model.rows[key].id for key in ((1, 0), (2, 0)))
    assert said.endswith(f"Most are held by {first} (5), {second} (3)")


def test_without_a_headroom_none_is_told() -> None:
    model = picture()
    assert "it needs 14; 3 are available" in why_next(model, model.rows[4, 0], waiting(headroom=0))


def test_other_reasons_are_told_in_the_words_of_the_daemon() -> None:
    model = picture()
    record = waiting(limit="slots")
    assert why_next(model, model.rows[4, 0], record) == "as it was when it was asked"


def test_a_reason_that_is_not_known_yet_is_not_made_up() -> None:
    model = picture()
    assert why_next(model, model.rows[4, 0], None).endswith("(waiting) is the first that waits")
    assert why_next(model, None, None) == "nobody waits"


def test_who_holds_the_most() -> None:
    assert "holds 5 of 11 pages, 45%" in most_pages(picture())
