"""``pagedd bench`` as a command: the private daemons that it starts, and what it says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pagedd import protocol
from pagedd.bench import scaling
from pagedd.bench.preemption import MODES
from pagedd.cli.bench import private
from pagedd.cli.main import main
from pagedd.config import BY_NAME
from pagedd.errors import ModelNotFound, PageddError
from pagedd.models.catalog import DEFAULT_MODEL
from pagedd.models.resolve import resolve
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import environment, run, with_built_kernels
from tests.tiny.models import build

POLICIES = BY_NAME["preemption-policy"].kind.choices


class Launcher:
    """Takes the place of ``launch``: a fake daemon in this process for each socket."""

    def __init__(self) -> None:
        self.started: list[dict[str, str]] = []  # flags of each daemon, in order
        self.running = 0
        self.most = 0
        self.room_for = 100  # daemons at a time
        self.refuse: protocol.Error | None = None
        self._exits = ExitStack()

    def __call__(self, flags: list[str], log: Path, *, own_session: bool) -> Any:
        if self.running == self.room_for:
            raise PageddError("the device has no memory left")
        pairs = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
        fake = FakeDaemon(Path(pairs["socket"]), refuse=self.refuse)
        serving = ExitStack()
        serving.enter_context(fake.serving())
        self.started.append(pairs)
        self.running += 1
        self.most = max(self.most, self.running)

        def wait(timeout: float) -> int:
            self.running -= 1
            serving.close()
            return 0

        return SimpleNamespace(pid=os.getpid(), terminate=lambda: None, wait=wait)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Launcher]:
    for name in [name for name in os.environ if name.startswith("PAGEDD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))  # no daemon runs there
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    found = Launcher()
    monkeypatch.setattr(private, "launch", found)
    monkeypatch.setattr(private, "ensure_model", lambda config: None)
    yield found
    assert found.running == 0, "a daemon was left behind"


def test_case46_starts_a_daemon_for_each_side(
    launcher: Launcher, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "case46", "--threads", "3", "--json", str(home / "out.json")]) == 0
    static, paged = launcher.started
    for flags in (static, paged):
        assert (flags["num-pages"], flags["page-size"], flags["threads"]) == ("100", "32", "3")
        assert flags["listen"] == "off"
    assert static["max-num-seqs"] == "1"
    assert paged["max-num-seqs"] == "20"
    assert "20 of 20" in capsys.readouterr().out
    result = json.loads((home / "out.json").read_text())
    assert result["paged"]["samples"] > 0
    assert result["same_answers"] == 20


def test_preemption_starts_a_daemon_for_each_setting_and_one_with_room(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "preemption", "--repeats", "2", "--json", "-"]) == 0
    large, *small = launcher.started  # the second turn starts none anew
    assert int(large["num-pages"]) > 4 * int(small[0]["num-pages"])
    assert "preemption-mode" not in large
    settings = [(flags["preemption-policy"], flags["preemption-mode"]) for flags in small]
    assert settings == [(policy, mode) for policy in POLICIES for mode in MODES]
    assert len({flags["num-pages"] for flags in small}) == 1
    result = json.loads(capsys.readouterr().out)
    assert [len(row["runs"]) for row in result["rows"]] == [2] * 10


def test_neighbour_runs_the_load_alone_and_beside_a_busy_process_in_turns(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    before = psutil.Process().children()  # of tests that ran here earlier
    command = ["bench", "neighbour", "--repeats", "2", "--num-requests", "3", "--json", "-"]
    assert main(command) == 0
    assert len(launcher.started) == 2, "one fits itself to the neighbour, one has never seen it"
    result = json.loads(capsys.readouterr().out)
    assert [len(result["runs"][side]) for side in ("alone", "beside")] == [2, 2]
    assert result["concurrency"] == 8
    assert psutil.Process().children() == before


def test_scaling_measures_one_daemon_with_slots_for_all(
    launcher: Launcher, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = [{"sequences": 1, "plan": 1.0, "build": 2.0, "commit": 3.0}]
    monkeypatch.setattr(scaling, "measure_outside", lambda: outside)
    monkeypatch.setattr(scaling, "CONCURRENCIES", (1, 2))
    assert main(["bench", "scaling", "--input-len", "8", "--output-len", "4", "--json", "-"]) == 0
    [flags] = launcher.started
    assert flags["max-num-seqs"] == "2"
    result = json.loads(capsys.readouterr().out)
    assert [point["concurrency"] for point in result["concurrency"]] == [1, 2]
    assert result["outside"] == outside
    assert main(["bench", "scaling", "--max-num-seqs", "4"]) == 2
    assert "sets this itself" in capsys.readouterr().err


def test_a_load_of_ones_own_gets_a_private_daemon_when_none_runs(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["bench", "--num-requests", "3", "--input-len", "8", "--output-len", "4"]
    assert main([*load, "--url", "unix:/nowhere"]) == 69
    assert main(load) == 0
    assert main([*load, "--threads", "2", "--socket", "/elsewhere.sock"]) == 0
    assert ["threads" in flags for flags in launcher.started] == [False, True]
    assert "/elsewhere.sock" not in [flags["socket"] for flags in launcher.started]
    assert capsys.readouterr().out.count("3 requests in") == 2


def test_flags_set_the_load_and_the_pages_but_no_file_does(
    launcher: Launcher, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "pagedd.toml").write_text('num-pages = 5000\npage-size = 64\nthreads = "auto"\n')
    command = ["bench", "preemption", "--config", str(home / "pagedd.toml"), "--repeats", "1"]
    command += ["--num-requests", "4", "--input-len", "8", "--output-len", "16", "--json", "-"]
    assert main(command) == 0
    load = json.loads(capsys.readouterr().out)["workload"]
    assert (load["num_requests"], load["page_size"], load["num_pages"]) == (4, 16, 3)
    assert main([*command, "--num-pages", "7", "--page-size", "8"]) == 0
    load = json.loads(capsys.readouterr().out)["workload"]
    assert (load["page_size"], load["num_pages"]) == (8, 7)
    assert launcher.started[-1]["num-pages"] == "7"


def test_without_memory_for_idle_daemons_they_run_one_after_the_other(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace(available=0)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: nothing)
    assert main(["bench", "preemption", "--repeats", "1"]) == 0
    assert (len(launcher.started), launcher.most) == (10, 1)


def test_idle_daemons_make_room_for_one_that_cannot_start(launcher: Launcher) -> None:
    launcher.room_for = 3
    assert main(["bench", "preemption", "--repeats", "1"]) == 0
    assert (len(launcher.started), launcher.most) == (10, 3)


def test_a_daemon_that_cannot_start_at_all_ends_the_bench(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.room_for = 0
    assert main(["bench", "case46"]) == 1
    assert "the device has no memory left" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["case46", "preemption"])
def test_requests_that_fail_make_the_exit_code_1(
    launcher: Launcher, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.refuse = protocol.Error("invalid_logits", "not a number", False)
    assert main(["bench", what]) == 1
    assert "error: not a number" in capsys.readouterr().out


def test_requests_that_cannot_fit_are_refused_before_any_is_sent(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "preemption", "--output-len", "4000"]) == 2
    assert "more than the 2048 of a sequence" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["case46", "--concurrency", "3"], "--concurrency goes with load and neighbour, not"),
        (["case46", "--num-requests", "3"], "--num-requests goes with load, preemption and"),
        (["case46", "--repeats", "3"], "--repeats goes with load, preemption and neighbour, not"),
        (["--repeats", "3"], "--repeats goes with --against URL, or with pagedd bench preemption"),
        (["--against", "vllm"], "--against: must be hf or http://HOST:PORT, not 'vllm'"),
        (["--against", "hf", "--prompts", "text"], "--against hf takes token ids"),
        (["--url", "http://h:1", "--threads", "2"], "--threads needs a private daemon"),
        (["--url", "https://h:1"], "'https://h:1' is no address of a server to measure"),
        (["--url", "http://h:port"], "'http://h:port' is no address"),
        (["--vocab-size", "0"], "--vocab-size: must be a whole number from 1"),
        (["preemption", "--against", "hf"], "--against goes with load"),
        (["case46", "--num-pages", "3"], "--num-pages: pagedd bench case46 sets this itself"),
        (["scaling", "--output-len", "1"], "--output-len: must be at least 2"),
        (["preemption", "--preemption-mode", "swap"], "--preemption-mode: pagedd bench preemption"),
        (["preemption", "--url", "unix:/x"], "--url: pagedd bench preemption starts private"),
        (["preemption", "--repeats", "0"], "--repeats: must be a whole number from 1"),
        (["case64"], "not 'case64', did you mean case46?"),
    ],
)
def test_flags_of_another_bench_are_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert expected in captured.err


def test_the_word_may_stand_before_or_after_the_flags(launcher: Launcher) -> None:
    assert main(["bench", "--seed", "4", "case46"]) == 0
    assert main(["bench", "case46", "--seed", "4"]) == 0
    assert [flags["seed"] for flags in launcher.started] == ["4"] * 4


def check_case46(result: dict[str, Any]) -> None:
    """What does not depend on how fast or busy the machine is."""
    static, paged = result["static"], result["paged"]
    assert static["completed"] == paged["completed"] == result["same_answers"] == 20
    assert paged["unused_slots_per_sequence"]["most"] < 32
    assert static["unused_share"] >= 0.8
    assert static["running"]["most"] == 1
    assert paged["running"]["mean"] >= 4 * static["running"]["mean"]
    assert paged["steps"] * 4 < static["steps"] == 4000
    assert static["preemptions"] == {"swap": 0, "recompute": 0}


def test_case46_with_a_tiny_model(home: Path) -> None:
    model = build("llama", home / "tiny")
    flags = ("--model", str(model), "--threads", "1", "--json", "-")
    done = run("bench", "case46", *flags, env=with_built_kernels(environment(home)), timeout=300)
    assert done.returncode == 0, done.stderr
    check_case46(json.loads(done.stdout))


@pytest.mark.slow
def test_preemption_with_a_tiny_model(home: Path) -> None:
    model = build("llama", home / "tiny")
    flags = ("--model", str(model), "--threads", "1", "--repeats", "1", "--json", "-")
    done = run(
        "bench", "preemption", *flags, env=with_built_kernels(environment(home)), timeout=300
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    free, *forced = result["rows"]
    assert free["preemptions_swap"] + free["preemptions_recompute"] == 0
    for row in forced:
        count = row["preemptions_swap"] + row["preemptions_recompute"]
        assert count >= 8, "the pool is too large to force anything"
        assert row["completed"] == row["same_answers"] == 16
        if row["mode"] == "swap":
            assert row["preemptions_recompute"] == 0 < row["swapped_bytes"]
        if row["mode"] == "recompute":
            assert row["preemptions_swap"] == row["swapped_bytes"] == 0 < row["recomputed_tokens"]


@pytest.mark.slow
def test_case46_with_the_embedded_model(home: Path) -> None:
    try:
        model = str(resolve(DEFAULT_MODEL).path)
    except ModelNotFound:
        pytest.skip(f"{DEFAULT_MODEL} is not downloaded")
    env = with_built_kernels(environment(home))
    done = run("bench", "case46", "--model", model, "--json", "-", env=env, timeout=900)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check_case46(result)
    assert result["ratios"]["output_tokens_per_s"] >= 4
