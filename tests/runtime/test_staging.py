"""Where a step's arrays lie, and that a step does not write on the one before."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from pagedd.runtime.staging import ALIGNMENT, Field, Layout, Staging

FIELDS = (
    Field("a", torch.int32, 3),
    Field("b", torch.int64, 2),
    Field("none", torch.int64, 0),
    Field("c", torch.float32, 5),
)


def test_arrays_are_aligned_and_apart() -> None:
    layout = Layout(FIELDS)
    places = list(layout.places.values())
    assert all(begin % ALIGNMENT == 0 for begin, _ in places)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    assert layout.nbytes == places[-1][1]


def test_what_is_written_arrives_with_one_copy_and_turns_are_taken() -> None:
    layout = Layout(FIELDS)
    staging = Staging(layout.nbytes + 64, torch.device("cpu"))
    views = layout.views(staging.device)
    first = staging.begin(layout)
    first["a"][:] = [1, 2, 3]
    first["b"][:] = [1 << 40, -1]
    first["c"][:] = 0.5
    assert not views["a"].any()
    staging.upload(layout)
    assert views["a"].tolist() == [1, 2, 3]
    assert views["b"].tolist() == [1 << 40, -1]
    assert views["c"].tolist() == [0.5] * 5
    second = staging.begin(layout)
    assert not np.shares_memory(first["a"], second["a"])
    assert np.shares_memory(first["a"], staging.begin(layout)["a"])
