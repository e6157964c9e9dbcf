"""Which rows of a step are drawn from, and how often."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedd.runtime.runner import drawn_rows


@given(st.lists(st.integers(0, 11), max_size=20).map(sorted))
def test_each_draw_finds_its_row(rows: list[int]) -> None:
    hidden = torch.arange(12)
    wanted, again = drawn_rows(rows, 12)
    computed = hidden if wanted is None else hidden[wanted]
    assert (computed if again is None else computed[again]).tolist() == rows
    assert len(set(computed.tolist())) == len(computed)


def test_nothing_is_chosen_from_a_step_in_which_all_rows_draw_once() -> None:
    assert drawn_rows([0, 1, 2], 3) == (None, None)
