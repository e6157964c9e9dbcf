"""The scaling bench: what it sends, where the knee is, what it shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pagedd.bench import plot, scaling
from pagedd.errors import PageddError
from tests.bench.runs import run, trace


def points(*speeds: float) -> list[dict[str, float]]:
    """One for each doubling from 1 on."""
    return [
        {"concurrency": 2**at, "tokens_per_s": speed, "ttft_ms": 1.0, "inter_token_ms": 2.0}
        for at, speed in enumerate(speeds)
    ]


@pytest.mark.parametrize(
    ("speeds", "at"),
    [
        ((100, 200, 390, 500, 540), 8),  # 500 → 540 is less than a tenth more
        ((100, 101, 400), 4),  # what comes after a doubling without gain counts
        ((100, 200, 150, 400), 8),
        ((100, 200, 150, 210), 2),  # compared with the best before
        ((100, 200, 400), 4),
        ((100,), 1),
        ((100, 110.1, 121.2), 4),
    ],
)
def test_the_knee_is_the_last_doubling_that_brings_a_tenth(
    speeds: tuple[float, ...], at: int
) -> None:
    assert scaling.knee(points(*speeds)) == at


def test_every_load_has_enough_requests_and_prompts_of_its_own() -> None:
    loads = list(scaling.loads(128, 64, seed=3))
    assert [load.concurrency for load in loads] == list(scaling.CONCURRENCIES)
    assert all(load.num_requests >= 2 * (load.concurrency or 0) for load in loads)
    assert min(load.num_requests for load in loads) == scaling.FEWEST_REQUESTS
    contexts = list(scaling.context_loads(1024, seed=3))
    assert [load.input_len + load.output_len for load in contexts] == [128, 256, 512, 1024]
    seeds = [load.seed for load in (*loads, *contexts)]
    assert len(set(seeds)) == len(seeds)


def test_a_step_is_what_lies_between_tokens_in_the_mean() -> None:
    [load] = list(scaling.context_loads(128, seed=0))
    # one came late and two together
    seen = run([trace(answer=range(4), sent=100.0, first=100.5, gaps=[0.03, 0.0, 0.03])])
    point = scaling.context_point(seen, load)
    assert point["context"] == 128
    assert point["step_ms"] == pytest.approx(20)
    assert point["prefill_ms"] == pytest.approx(500)


def test_a_request_that_fails_is_no_figure() -> None:
    [load] = list(scaling.context_loads(128, seed=0))
    with pytest.raises(PageddError, match="out of luck"):
        scaling.context_point(run([trace(error="out of luck", ended=None)]), load)
    first = next(scaling.loads(8, 8, 0))
    with pytest.raises(PageddError, match="out of luck"):
        scaling.concurrency_point(run([trace(error="out of luck", ended=None)]), first)


def figures() -> dict[str, object]:
    phases = {"plan": 10.0, "build": 20.0, "sample": 5.0, "commit": 30.0, "send": 1.0}
    return {
        "daemon": {"model": "m", "device": "cpu", "dtype": "float32"},
        "input_len": 8,
        "output_len": 4,
        "concurrency": points(100, 200, 210),
        "context": [{"context": 128, "step_ms": 12.5, "prefill_ms": 70.0}],
        "outside": [{"sequences": 1} | phases, {"sequences": 256} | phases],
        "knee": 2,
    }


def test_the_table_has_a_line_for_every_point() -> None:
    text = "\n".join(scaling.table(figures()))
    assert "--max-num-seqs 2: the last doubling that brings 10% more" in text
    for cell in ("210.0", "12.50", "256"):
        assert cell in text
    assert text.splitlines()[-1].split()[-1] == "60", "plan, build and commit"


def test_the_picture_is_drawn_where_it_can_be(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    where = tmp_path / "p.png"
    plot.draw(figures(), str(where))
    assert where.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(PageddError, match="cannot be written"):
        plot.draw(figures(), str(tmp_path / "nowhere" / "p.png"))
    with pytest.raises(PageddError, match=r"p\.odd cannot be written: Format 'odd'"):
        plot.draw(figures(), str(tmp_path / "p.odd"))


def test_a_plot_without_matplotlib_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PageddError, match="a plot needs matplotlib"):
        plot.blank()
