"""The three answers in words: what they say is what the rest of the screen shows."""

from __future__ import annotations

from typing import Any

from pagedd.protocol import FREE, OWNED, SHARED, Record
from pagedd_tui.glance import glance_lines, most_pages, why_next
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
    assert "holds 5 of 11 pages, 45%; it is decoding" in most_pages(picture())


def test_choices_of_a_request_hold_their_prompt_together() -> None:
    """r1 has five pages; the three choices of r2 three shared ones, and one, two and none alone."""
    model = Model()
    rows = [row(1, pages=5), row(2, pages=4), row(2, index=1, pages=5), row(2, index=2, pages=3)]
    cells = [OWNED] * 5 + [SHARED] * 3 + [OWNED] * 3 + [FREE]
    model.take(keyframe(1, cells, rows, owners=[1] * 5 + [2] * 3 + [2, 3, 3] + [0]))
    assert most_pages(model) == "r2 holds 6 of 12 pages, 50%, in 3 choices; it is decoding"
    said = why_next(model, row(3, "waiting", pages=0), waiting())
    assert said.endswith("Most are held by r2 (6), r1 (5)")


def test_a_page_that_not_all_choices_share_counts_too() -> None:
    """Two of three have not yet written to the last page of the prompt, of which one has a copy."""
    model = Model()
    rows = [row(1, index=index, pages=3) for index in range(3)]
    cells = [SHARED] * 3 + [OWNED]
    model.take(keyframe(1, cells, rows, owners=[1, 1, 1, 2]))
    assert most_pages(model).startswith("r1 holds 4 of 4 pages, 100%, in 3 choices")


def test_equals_are_named() -> None:
    model = Model()
    rows = [row(n, pages=2) for n in (1, 2, 3)]
    model.take(keyframe(1, [OWNED] * 6, rows, owners=[1, 1, 2, 2, 3, 3]))
    assert most_pages(model).startswith("r1 holds 2 of 6 pages, 33%; it is decoding; 2 others as m")
    model.take(keyframe(2, [OWNED] * 4, rows[:2], owners=[1, 1, 2, 2]))
    assert most_pages(model).endswith("; r2 as many")


def test_one_choice_alone_is_called_by_its_name() -> None:
    model = Model()
    rows = [row(1, "swapped", pages=3), row(1, index=2, pages=3)]
    model.take(keyframe(1, [OWNED] * 3, rows, owners=[2, 2, 2]))
    assert most_pages(model).startswith("r1/2 holds 3 of 3 pages")
    model.take(keyframe(2, [FREE] * 3, rows[:1]))
    assert most_pages(model) == "no request holds a page of the device"


def test_why_the_next_waits_is_told_to_its_end_first() -> None:
    model = picture()
    model.rows |= {(n, 0): row(n, pages=5) for n in (5, 6)}  # equals make the first answer long
    lines = glance_lines(model, model.rows[3, 0], waiting(), "»", 70, 5)
    text = ["".join(part.text for part in each) for each in lines]
    assert "Most are held by r1 (5), r5 (5), r6 (5)" in " ".join(" ".join(text).split())
    assert text[0].startswith("most pages")
    assert text[0].endswith("…")
    assert len(text) == 5
