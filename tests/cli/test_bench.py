"""``pagedd bench``: a load that can be repeated, honest numbers, and the two sides."""

from __future__ import annotations

import json
import random
import statistics
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd import protocol
from pagedd.bench.child import run_child
from pagedd.bench.drive import DaemonRun, Driver
from pagedd.bench.load import Item, Workload, around, make_items
from pagedd.bench.peer import measure_hf
from pagedd.bench.report import percentile, summarise_daemon, table
from pagedd.errors import PageddError, Unreachable, UsageError
from tests.cli.fake_daemon import LEDGER, FakeDaemon, status
from tests.cli.terminal import run


def workload(**changes: Any) -> Workload:
    whole = {
        "num_requests": 20,
        "concurrency": 4,
        "request_rate": None,
        "input_len": 30,
        "output_len": 10,
        "fixed_len": False,
        "prefix_len": 0,
        "seed": 1,
        "temperature": 0.0,
    }
    return Workload(**(whole | changes))


def test_the_same_seed_gives_the_same_requests_and_another_one_does_not() -> None:
    first = make_items(workload(), 1000, 512)
    assert make_items(workload(), 1000, 512) == first
    assert make_items(workload(seed=2), 1000, 512) != first


def test_lengths_are_log_normal_with_the_means() -> None:
    items = make_items(workload(num_requests=4000), 1000, 100_000)
    prompts = [len(item.prompt) for item in items]
    assert statistics.mean(prompts) == pytest.approx(30, rel=0.05)
    assert statistics.mean(item.output_len for item in items) == pytest.approx(10, rel=0.05)
    assert statistics.median(prompts) < statistics.mean(prompts)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5), st.booleans(), st.integers(0, 99))
def test_every_request_fits_and_keeps_off_the_special_tokens(
    input_len: int, output_len: int, prefix_len: int, fixed: bool, seed: int
) -> None:
    load = workload(
        input_len=input_len + prefix_len,
        output_len=output_len,
        prefix_len=prefix_len,
        fixed_len=fixed,
        seed=seed,
    )
    items = make_items(load, 1000, 128)
    assert len(items) == 20
    for item in items:
        assert item.output_len >= 1
        assert len(item.prompt) > prefix_len
        assert len(item.prompt) + item.output_len <= 128
        assert item.prompt[:prefix_len] == items[0].prompt[:prefix_len]
        assert all(50 <= token < 950 for token in item.prompt)
        if fixed:
            assert (len(item.prompt), item.output_len) == (load.input_len, output_len)


@given(st.integers(1, 300), st.integers(1, 60), st.integers(0, 99))
def test_even_lengths_are_near_the_mean_and_keep_it(mean: int, count: int, seed: int) -> None:
    lengths = around(random.Random(seed), mean, 2 * count)
    assert sum(lengths) == 2 * count * mean
    assert all(max(1, 0.75 * mean) <= length <= 1.25 * mean for length in lengths)
    assert len(around(random.Random(seed), mean, count)) == count


def test_arrivals_have_the_rate() -> None:
    items = make_items(workload(num_requests=4000, concurrency=None, request_rate=8.0), 1000, 512)
    assert items[-1].at / len(items) == pytest.approx(1 / 8, rel=0.1)
    assert all(a.at <= b.at for a, b in pairwise(items))


def test_what_cannot_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="do not fit in the model's 32 tokens"):
        make_items(workload(), 1000, 32)
    with pytest.raises(UsageError, match="--prefix-len"):
        make_items(workload(prefix_len=30), 1000, 512)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_percentiles_agree_with_the_standard_library(values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    for percent in (50, 90, 99):
        assert percentile(values, percent) == pytest.approx(cuts[percent - 1], abs=1e-6)


class ScriptedWire:
    """A daemon on a clock of its own: every ``receive`` is one step of 10 ms, in which each open
    request gets ``per_step`` tokens."""

    def __init__(self, per_step: int = 1, refuse: frozenset[str] = frozenset()) -> None:
        self.now = 100.0
        self.most_open = 0
        self.sent: list[tuple[float, str]] = []
        self._per_step = per_step
        self._refuse = refuse
        self._open: dict[str, list[int]] = {}  # name → [tokens left, seq, all]
        self._frames: deque[protocol.ServerFrame] = deque()

    def clock(self) -> float:
        return self.now

    def send(self, frame: protocol.ClientFrame) -> None:
        if isinstance(frame, protocol.StatusRequest):
            self._frames.append(status())
            return
        assert isinstance(frame, protocol.Generate)
        assert frame.params.ignore_eos
        self.sent.append((self.now, frame.id))
        if frame.id in self._refuse:
            self._frames.append(protocol.Error("queue_full", "full", True, id=frame.id))
            return
        assert frame.params.max_tokens is not None
        self._open[frame.id] = [frame.params.max_tokens, 0, frame.params.max_tokens]
        self.most_open = max(self.most_open, len(self._open))

    def receive(self, timeout: float | None = None) -> protocol.ServerFrame | None:
        if not self._frames:
            assert timeout is not None
            self.now += min(0.01, timeout)
            for name, state in list(self._open.items()):
                count = min(self._per_step, state[0])
                state[0] -= count
                state[1] += 1
                self._frames.append(protocol.Delta(name, 0, state[1], "x", [7] * count))
                if not state[0]:
                    del self._open[name]
                    choice = protocol.Choice(0, "length")
                    usage = protocol.Usage(5, state[2], 1)
                    self._frames.append(protocol.Done(name, [choice], usage, LEDGER))
        return self._frames.popleft() if self._frames else None


def drive(wire: ScriptedWire, items: list[Item], load: Workload) -> tuple[DaemonRun, list[float]]:
    shares: list[float] = []
    driver = Driver(wire, items, load, lambda share, what: shares.append(share), wire.clock)
    return driver.watched(status(), lambda: status(recomputed_tokens=20)), shares


def test_as_many_are_open_as_the_concurrency_and_all_are_counted() -> None:
    load = workload()
    items = make_items(load, 1000, 512)
    wire = ScriptedWire()
    run_, shares = drive(wire, items, load)
    result = summarise_daemon(run_, items, load)
    assert wire.most_open == 4
    assert (result["completed"], result["failed"]) == (20, 0)
    assert result["output_tokens"] == sum(item.output_len for item in items)
    assert result["output_tokens_per_s"] == pytest.approx(
        result["output_tokens"] / (wire.now - 100)
    )
    assert shares[-1] == 1.0
    assert result["ttft_ms"]["p50"] == pytest.approx(10)
    assert result["inter_token_ms"]["p99"] == pytest.approx(10)
    assert result["kv_use"]["peak"] == pytest.approx(0.4)
    assert result["recomputed_tokens"] == 8
    assert result["cached_tokens"] == 20


def test_a_frame_with_several_tokens_spreads_its_gap() -> None:
    load = workload(num_requests=1, output_len=9, fixed_len=True)
    run_, _ = drive(ScriptedWire(per_step=2), make_items(load, 1000, 512), load)
    gaps = run_.traces[0].gaps
    assert len(gaps) == 8  # nine tokens, eight gaps
    assert sum(gaps) == pytest.approx(0.04)


def test_arrivals_do_not_wait_for_answers() -> None:
    load = workload(concurrency=None, request_rate=50.0)
    items = make_items(load, 1000, 512)
    wire = ScriptedWire()
    drive(wire, items, load)
    for (at, _), item in zip(wire.sent, items, strict=True):
        assert at - 100 == pytest.approx(item.at, abs=0.011)


def test_a_refused_request_is_counted_apart() -> None:
    load = workload()
    wire = ScriptedWire(refuse=frozenset({"3", "5"}))
    items = make_items(load, 1000, 512)
    run_, _ = drive(wire, items, load)
    result = summarise_daemon(run_, items, load)
    assert (result["completed"], result["failed"], result["errors"]) == (18, 2, ["full"])
    assert "2 failed" in "\n".join(table(result))


def test_a_daemon_that_falls_silent_is_given_up() -> None:
    load = workload()

    class Silent(ScriptedWire):
        def receive(self, timeout: float | None = None) -> None:
            self.now += 1.0

    with pytest.raises(Unreachable, match="nothing came"):
        drive(Silent(), make_items(load, 1000, 512), load)


def test_the_table_states_the_conditions_of_the_other_side() -> None:
    load = workload()
    items = make_items(load, 1000, 512)
    run_, _ = drive(ScriptedWire(), items, load)
    result = summarise_daemon(run_, items, load)
    result["peer"] = {
        "version": "9",
        "conditions": "static batches of 4",
        "seconds": 2.0,
        "output_tokens": 100,
        "output_tokens_per_s": 50.0,
    }
    result["ratio"] = 6.5
    text = "\n".join(table(result))
    assert "static batches of 4" in text
    assert "6.50 times" in text


def test_the_command_measures_a_running_daemon(
    env: dict[str, str], daemon: FakeDaemon, home: Path
) -> None:
    arguments = ("--num-requests=6", "--concurrency=2", "--input-len=8", "--output-len=4")
    done = run("bench", *arguments, "--json", str(home / "out.json"), env=env)
    assert done.returncode == 0
    assert b"6 requests in" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr
    found = json.loads((home / "out.json").read_text())
    assert found["completed"] == 6
    done = run("bench", *arguments, "--json", "-", env=env)
    assert json.loads(done.stdout)["workload"]["seed"] == 0
    daemon.refuse = protocol.Error("queue_full", "full", True)
    assert run("bench", *arguments, env=env).returncode == 1


def test_transformers_runs_the_same_requests_in_static_batches(tmp_path: Path) -> None:
    from tests.tiny.models import build

    folder = build("llama", tmp_path / "model")
    items = [Item([5, 6, 7], 3, 0.0), Item([8], 5, 0.0), Item([9, 10], 2, 0.0)]
    job = {"model": str(folder), "load_format": "auto", "dtype": "float32", "device": "cpu"}
    shares: list[float] = []
    result = measure_hf(
        {**job, "batch": 2, "threads": 1}, items, lambda share, what: shares.append(share)
    )
    assert (result["batches"], result["output_tokens"]) == (2, 10)
    assert result["output_tokens_per_s"] > 0
    assert "static batches of 2" in result["conditions"]
    assert shares[-1] == 1.0


def test_a_failure_of_the_other_side_is_one_line() -> None:
    job = {"model": "/none", "load_format": "auto", "dtype": "float32", "device": "cpu"}
    with pytest.raises(PageddError, match="transformers could not be measured: no model at"):
        measure_hf({**job, "batch": 1, "threads": 1}, [Item([1], 1, 0.0)], lambda share, what: None)


def test_a_child_that_dies_before_it_has_read_its_job_is_one_line() -> None:
    job = {"more than a pipe holds": "x" * (1 << 20)}
    with pytest.raises(PageddError, match=r"it could not be measured: .*No module named"):
        run_child("no_such_module", job, lambda share, what: None, "it could not be measured")
