"""The neighbour bench: the busy process, and what is made of both sides."""

from __future__ import annotations

import psutil
import pytest

from pagedd.bench.neighbour import busy_neighbour, summarise_sides, table
from tests.bench.runs import run, trace


def test_the_busy_process_ends_with_the_block() -> None:
    with busy_neighbour(60) as pid:
        assert psutil.Process(pid).is_running()
    assert not psutil.pid_exists(pid)
    with pytest.raises(KeyboardInterrupt), busy_neighbour(60) as pid:
        raise KeyboardInterrupt
    assert not psutil.pid_exists(pid)


def test_the_busy_process_ends_by_itself_when_nobody_ends_it() -> None:
    with busy_neighbour(0) as pid:
        gone, left = psutil.wait_procs([psutil.Process(pid)], timeout=30)
        assert (len(gone), left) == (1, [])


def test_the_share_is_that_of_the_medians() -> None:
    def at(speed: int) -> object:
        return run([trace(answer=range(speed))], seconds=2.0)

    result = summarise_sides(8, [at(n) for n in (20, 40, 60)], [at(n) for n in (2, 20, 80)])
    assert result["output_tokens_per_s"] == {"alone": 20.0, "beside": 10.0}
    assert result["share"] == 0.5
    assert result["failed"] == 0
    assert table(result)[-1].strip() == "50% of the speed is left"
