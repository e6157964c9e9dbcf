"""What rounding weights costs stays within the bounds that the manual states."""

from __future__ import annotations

import pytest

from pagedd.runtime.bench_perplexity import FORMS
from pagedd.runtime.perplexity import compare, token_losses
from tests.quality import measure

SHORT = 160


def test_a_piece_of_the_text() -> None:
    """The file's own form is near dense weights in float32."""
    ids = measure.text_ids(SHORT)
    exact, auto = (token_losses(measure.load(*form), ids) for form in (FORMS[0], FORMS[2]))
    found = compare(auto, exact)
    assert 10 < found.perplexity < 100
    # the error of so few tokens comes on top
    assert abs(found.change) < measure.BOUNDS["auto"] + 3 * found.error


@pytest.mark.slow
def test_the_floats_in_another_order_are_the_same_function() -> None:
    ids = measure.text_ids(SHORT)
    found = token_losses(measure.load_floats("float32", "dense"), ids)
    expected = token_losses(measure.load("float32", "dense"), ids)
    assert (found - expected).abs().max() < 1e-3


@pytest.mark.slow
def test_the_whole_text() -> None:
    ids = measure.text_ids()
    assert len(ids) >= 50_000
    rows = measure.rows(ids, lambda fraction, what: None)
    assert [(row["dtype"], row["weights"]) for row in rows] == list(FORMS)
    assert rows[1]["perplexity"] == rows[2]["perplexity"]
    for row in rows[1:]:
        assert abs(row["change"]) < measure.BOUNDS[row["weights"]], row
    assert rows[0]["bytes"] > rows[1]["bytes"] > rows[3]["bytes"] > rows[4]["bytes"]
