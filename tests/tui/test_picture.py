"""The picture of a map without a terminal: colours, reverse video, selection, ages."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from pagedd.protocol import CACHED, FREE, OWNED, SHARED
from pagedd_tui.cells import Cells, Owner
from pagedd_tui.colouring import NO_OWNER, WAYS, Colouring
from pagedd_tui.grid import LEVEL_SHIFT
from pagedd_tui.picture import REVERSE, Picture

A, B = (1, 0), (2, 0)


def memory(states: list[int], owners: list[Owner] | None = None) -> Cells:
    cells = Cells()
    cells.replace(bytes(states), list(owners) if owners else None)
    return cells


def laid_out(cells: Cells, width: int, height: int, zoom: int = 0) -> Picture:
    picture = Picture()
    picture.show(cells, None, 0.0)
    picture.lay_out(width, height, zoom)
    return picture


def reversed_cells(picture: Picture) -> set[int]:
    codes = b"".join(picture.row(y) for y in range(picture.num_rows))
    return {i for i, code in enumerate(codes) if code & REVERSE}


def test_rows_hold_a_code_for_each_cell() -> None:
    picture = laid_out(memory([FREE, OWNED, SHARED, CACHED, OWNED]), 2, 3)
    rows = [picture.row(y) for y in range(picture.num_rows)]
    assert [len(row) for row in rows] == [2, 2, 1]
    assert [code >> LEVEL_SHIFT for row in rows for code in row] == [0, 1, 2, 3, 1]
    assert [code & 15 for row in rows for code in row] == [0, 1, 2, 3, 1]


def test_zoom_halves_the_pages_of_a_cell_down_to_one() -> None:
    cells = memory([OWNED] * 100)
    picture = laid_out(cells, 5, 2)
    ks = [picture.k]
    for zoom in range(1, 6):
        picture.lay_out(5, 2, zoom)
        ks.append(picture.k)
    assert ks == [10, 5, 3, 2, 1, 1]
    assert picture.fit_k == 10
    assert picture.num_rows == 20


def test_changed_pages_are_reversed_for_one_frame() -> None:
    cells = memory([FREE] * 8)
    picture = laid_out(cells, 4, 2)
    cells.change([2, 5], bytes([OWNED, OWNED]), [A, B])
    assert picture.show(cells, (2, 5), 1.0) == {2, 5}
    assert reversed_cells(picture) == {2, 5}
    assert picture.show(cells, (), 2.0) == {2, 5}
    assert reversed_cells(picture) == set()
    assert picture.show(cells, (), 3.0) == set()


def test_pages_of_the_selected_request_are_reversed_as_long_as_it_holds_them() -> None:
    cells = memory([OWNED] * 6, [A, B, A, None, B, A])
    picture = laid_out(cells, 3, 1)  # two pages a cell
    assert picture.select(A) == {0, 1, 2}
    assert reversed_cells(picture) == {0, 1, 2}
    cells.change([2], bytes([OWNED]), [B])
    picture.show(cells, (2,), 1.0)
    picture.show(cells, (), 2.0)
    assert reversed_cells(picture) == {0, 2}
    assert picture.select(B) == {0, 1, 2}
    assert reversed_cells(picture) == {0, 1, 2}
    picture.select(None)
    assert reversed_cells(picture) == set()


def test_a_keyframe_replaces_everything_and_keeps_the_selection() -> None:
    cells = memory([OWNED] * 4, [A, B, A, B])
    picture = laid_out(cells, 4, 1)
    picture.select(A)
    cells.replace(bytes([OWNED] * 6), [B, A, A, A, B, B])
    assert picture.show(cells, (0,), 1.0) is None  # it is noticed that all are new
    picture.lay_out(6, 1, 0)
    assert reversed_cells(picture) == {1, 2, 3}
    cells.replace(b"")
    assert picture.show(cells, None, 2.0) is None
    assert picture.num_rows == 0


def test_owners_have_classes_of_their_own() -> None:
    colouring = Colouring("owner")
    colouring.replace(memory([OWNED, OWNED, SHARED, CACHED, FREE], [A, B, A, None, None]), 0.0)
    first, second, shared, cached, free = colouring.classes
    assert first == shared != second
    assert (cached, free) == (NO_OWNER, 0)


def test_pages_grow_older() -> None:
    cells = memory([OWNED, OWNED, FREE])
    colouring = Colouring("age")
    colouring.replace(cells, 100.0)
    assert list(colouring.classes) == [4, 4, 0]
    assert colouring.take(cells, (0,), 100.0) == [(0, 4, 1)]
    assert colouring.take(cells, (), 100.5) == []
    assert colouring.take(cells, (), 101.0) == [(0, 1, 2)]
    assert colouring.take(cells, (1,), 105.0) == [(1, 4, 1)]
    assert sorted(colouring.take(cells, (), 200.0)) == [(0, 2, 4), (1, 1, 4)]
    assert colouring.take(cells, (), 300.0) == []


def test_a_keyframe_makes_only_pages_young_that_are_different() -> None:
    cells = memory([OWNED, OWNED, CACHED], [A, B, None])
    colouring = Colouring("age")
    colouring.replace(cells, 50.0)
    cells.replace(bytes([OWNED, OWNED, FREE]), [A, A, None])
    colouring.replace(cells, 60.0)
    assert list(colouring.classes) == [4, 1, 0]
    colouring.replace(cells, 10.0)  # the clock, or the place in a recording, went back
    assert list(colouring.classes) == [4, 4, 0]


FRAME = st.tuples(
    st.dictionaries(
        st.integers(0, 29), st.tuples(st.integers(0, 5), st.sampled_from([A, B, None]))
    ),
    st.sampled_from([0.0, 0.1, 1.0, 7.0, 30.0]),
    st.sampled_from([None, *WAYS]),
    st.sampled_from([A, B, None]),
)


@given(st.lists(FRAME, max_size=12), st.integers(1, 8))
def test_a_picture_that_followed_equals_one_that_begins_now(
    frames: list[tuple[dict[int, tuple[int, Owner]], float, str | None, Owner]], width: int
) -> None:
    cells = memory([FREE] * 30)
    picture = laid_out(cells, width, 30)
    now = 0.0
    for change, later, by, owner in frames:
        now += later
        pages = tuple(sorted(change))
        states = bytes(change[page][0] for page in pages)
        cells.change(pages, states, [change[page][1] for page in pages])
        picture.show(cells, pages, now)
        if by is not None:
            picture.colour_by(by)
        picture.select(owner)
    picture.show(cells, (), now)  # nothing flashes any more
    anew = Picture(picture.by)
    anew.show(cells, None, now)
    anew.lay_out(width, 30, 0)
    anew.select(picture.selected)
    assert reversed_cells(picture) == reversed_cells(anew)
    if picture.by != "age":
        assert [picture.row(y) for y in range(30)] == [anew.row(y) for y in range(30)]


def test_a_large_memory_costs_by_its_changes() -> None:
    cells = memory([OWNED] * 100_000, [A, B] * 50_000)
    picture = laid_out(cells, 200, 50)
    picture.select(A)
    pages = tuple(range(0, 100_000, 200))
    began = time.process_time()
    for i in range(20):
        cells.change(pages, bytes([i % 4]) * len(pages), [B] * len(pages))
        picture.show(cells, pages, float(i))
    assert (time.process_time() - began) / 20 < 0.03  # it is about 2 ms
