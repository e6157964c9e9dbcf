"""Cells of several pages: counts, commonest class, height, inertia; changes equal building anew."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd_tui.grid import (
    EMPTY,
    FULL,
    HALF,
    LEVEL_SHIFT,
    LOW,
    LOWEST,
    NUM_CLASSES,
    Grid,
    pages_per_cell,
)

CLASSES = st.integers(0, NUM_CLASSES - 1)


def look(classes: str, k: int | None = None) -> tuple[int, int]:
    """Level and class of the first cell."""
    shown = Grid(k or len(classes), bytes(map(int, classes))).shown[0]
    return shown >> LEVEL_SHIFT, shown & NUM_CLASSES - 1


@pytest.mark.parametrize(
    ("pages", "cells", "k"), [(8192, 1638, 6), (100, 100, 1), (101, 100, 2), (0, 10, 1), (9, 0, 1)]
)
def test_the_fewest_pages_a_cell_that_fit(pages: int, cells: int, k: int) -> None:
    assert pages_per_cell(pages, cells) == k


def test_a_cell_shows_the_commonest_that_is_not_free_and_how_full_it_is() -> None:
    assert look("0000000000") == (EMPTY, 0)
    assert look("0000000300") == (LOWEST, 3)
    assert look("0000000121") == (LOW, 1)
    assert look("0000022211") == (HALF, 2)
    assert look("2222222111") == (FULL, 2)
    assert look("1" * 4 + "0") == (FULL, 1)
    assert look("0" * 999 + "3") == (LOWEST, 3)


def test_the_last_cell_may_stand_for_fewer_pages() -> None:
    grid = Grid(4, bytes([0, 0, 0, 0, 1, 1]))
    assert [list(grid.pages_of(cell)) for cell in range(2)] == [[0, 1, 2, 3], [4, 5]]
    assert grid.shown[1] >> LEVEL_SHIFT == FULL
    assert Grid(4, b"").shown == b""


def test_a_count_that_goes_to_and_fro_does_not_flicker() -> None:
    grid = Grid(32, bytes([1] * 12 + [0] * 20))  # 12 of 32 is just at a limit
    before = bytes(grid.shown)
    for _ in range(3):
        assert grid.change([(12, 0, 1)]) == set()
        assert grid.change([(12, 1, 0)]) == set()
    assert grid.shown == before
    assert grid.change([(page, 0, 1) for page in range(12, 20)]) == {0}
    assert grid.shown[0] >> LEVEL_SHIFT == HALF


def test_a_class_that_leads_by_little_does_not_take_over() -> None:
    grid = Grid(16, bytes([1] * 8 + [2] * 8))
    assert grid.shown[0] & NUM_CLASSES - 1 == 1
    grid.change([(0, 1, 2)])
    assert grid.shown[0] & NUM_CLASSES - 1 == 1
    grid.change([(1, 1, 2), (2, 1, 2)])
    assert grid.shown[0] & NUM_CLASSES - 1 == 2


def test_a_cell_that_empties_is_empty_at_once() -> None:
    grid = Grid(100, bytes([1] + [0] * 99))
    assert grid.change([(0, 1, 0)]) == {0}
    assert grid.shown[0] == 0


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, list[int], list[list[tuple[int, int]]]]:
    classes = draw(st.lists(CLASSES, min_size=1, max_size=60))
    page = st.integers(0, len(classes) - 1)
    frames = draw(st.lists(st.lists(st.tuples(page, CLASSES), max_size=20), max_size=8))
    return draw(st.integers(1, 20)), classes, frames


@given(changes(), st.booleans())
def test_changes_give_the_grid_that_is_built_anew(
    case: tuple[int, list[int], list[list[tuple[int, int]]]], inertia: bool
) -> None:
    k, classes, frames = case
    grid = Grid(k, bytes(classes), inertia=inertia)
    for frame in frames:
        before = bytes(grid.shown)
        steps = []
        for page, kind in frame:
            steps.append((page, classes[page], kind))
            classes[page] = kind
        different = grid.change(steps)
        assert different == {i for i in range(len(grid)) if grid.shown[i] != before[i]}
    anew = Grid(k, bytes(classes), inertia=inertia)
    for cell in range(len(anew)):
        counts = anew.counts_of(cell)
        assert grid.counts_of(cell) == counts
        shown, fresh = grid.shown[cell], anew.shown[cell]
        assert (shown == 0) == (fresh == 0) == (sum(counts[1:]) == 0)
        assert abs((shown >> LEVEL_SHIFT) - (fresh >> LEVEL_SHIFT)) <= int(inertia)
        kind, of_fresh = shown & NUM_CLASSES - 1, counts[fresh & NUM_CLASSES - 1]
        lead = 0.125 * sum(counts[1:]) if inertia else 0
        assert not shown or (counts[kind] > 0 and of_fresh - counts[kind] <= lead)


def test_a_hundred_thousand_pages_cost_by_their_changes() -> None:
    grid = Grid(10, bytes(page % 4 for page in range(100_000)))
    steps = [(page, page % 4, (page + 1) % 4) for page in range(0, 100_000, 200)]
    back = [(page, now, before) for page, before, now in steps]
    began = time.process_time()
    for _ in range(20):
        grid.change(steps)
        grid.change(back)
    assert (time.process_time() - began) / 40 < 0.02  # it is about 1 ms
