"""The step outside the model: the child that ``pagedd bench scaling`` starts."""

from __future__ import annotations

import json

import pytest

from pagedd.bench.scaling import scheduling
from pagedd.runtime.bench_steps import main


def test_every_phase_of_every_count_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    job = {"counts": [1, 3], "context": 20, "page_size": 4, "steps": 5}
    assert main([json.dumps(job)]) == 0
    one, three = json.loads(capsys.readouterr().out)
    assert (one["sequences"], three["sequences"]) == (1, 3)
    assert set(one) == {"sequences", "plan", "build", "sample", "commit", "send"}
    assert min(one.values()) > 0
    assert scheduling(three) == three["plan"] + three["build"] + three["commit"]
