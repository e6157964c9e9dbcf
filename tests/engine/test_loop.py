"""The loop in this process: the real scheduler, a fake runner, and a scripted link."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from pagedd.core.plan import Sampled, StepPlan, StepResult
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.engine.link import EngineLink
from pagedd.engine.loop import serve
from pagedd.engine.messages import (
    CancelRequest,
    Command,
    EndChoice,
    Report,
    Shutdown,
    Step,
    Submit,
)

# What a block of the script means: commands that have come when the loop drains.
Script = list[list[Command]]


class ScriptedLink(EngineLink):
    """Gives out the script, one list a drain; then the daemon is gone."""

    def __init__(self, script: Script) -> None:
        self.closed = False
        self.reports: list[Report] = []
        self.blocked: list[bool] = []
        self._script = iter(script)

    def drain(self, *, block: bool) -> list[Command]:
        self.blocked.append(block)
        commands = next(self._script, None)
        if commands is None:
            self.closed = True
            return []
        return commands

    def quiet(self) -> bool:
        return True

    def send(self, report: Report) -> None:
        self.reports.append(report)


class Sevens:
    """Draws 7, or raises in the step that it is told."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.phases = {"build": 1.0, "execute": 2.0, "sample": 3.0}
        self.steps = 0
        self._fails_at = fails_at

    def prepare(self) -> bool:
        return False

    def execute(self, plan: StepPlan) -> StepResult:
        self.steps += 1
        if self.steps == self._fails_at:
            raise RuntimeError("out of memory")
        return StepResult(tuple(Sampled(slot, 7) for c in plan.chunks for slot in c.samples))


def scheduler() -> Scheduler:
    config = SchedulerConfig(
        num_pages=16,
        page_size=4,
        max_num_seqs=4,
        max_num_batched_tokens=8,
        max_model_len=64,
        max_queue=8,
        eos_ids=frozenset({0}),
    )
    return Scheduler(config, key=b"k")


def submit(handle: int, max_tokens: int = 2, n: int = 1) -> Submit:
    return Submit(Request(handle, (1, 2, 3), SamplingParams(max_tokens=max_tokens, n=n)))


def run(script: Script, runner: Sevens | None = None) -> tuple[ScriptedLink, list[Step]]:
    link = ScriptedLink(script)
    clock = itertools.count()
    serve(link, scheduler(), runner or Sevens(), lambda: float(next(clock)))
    steps = [report for report in link.reports if isinstance(report, Step)]
    assert len(steps) == len(link.reports)
    return link, steps


def test_one_report_per_step_and_rest_when_idle() -> None:
    link, steps = run([[submit(1)], [], []])
    assert link.blocked == [True, False, True, True]
    assert [[token.token for token in step.events.tokens] for step in steps] == [[7], [7]]
    assert [finished.handle for finished in steps[1].events.finished] == [1]
    assert steps[1].stats.finished_total == 1
    assert set(steps[0].phases) == {"plan", "build", "execute", "sample", "commit", "send"}
    assert steps[0].phases["execute"] == 2.0


def test_commands_between_steps_take_effect() -> None:
    _, steps = run([[submit(1, 9, n=2)], [EndChoice(1, 0)], [CancelRequest(1)], []])
    assert [len(step.events.tokens) for step in steps] == [2, 1, 0]
    assert steps[2].events.finished[0].cancelled
    assert steps[2].stats.pages.free + steps[2].stats.pages.cached == 16


def test_commands_that_change_nothing_are_reported_as_alive() -> None:
    link, steps = run([[CancelRequest(99)], []])
    assert [bool(step.events) for step in steps] == [False]
    assert steps[0].phases == {}
    assert link.blocked == [True, True, True]


def test_what_is_refused_is_told_without_a_step() -> None:
    _, steps = run([[submit(1, n=5)]])
    assert [failed.code for failed in steps[0].events.failed] == ["bad_request"]
    assert steps[0].phases == {}


def test_shutdown_ends_it_with_work_open() -> None:
    runner = Sevens()
    _, steps = run([[submit(1, 9)], [], [Shutdown(), submit(2)], [], []], runner)
    assert runner.steps == len(steps) == 2


def test_what_the_runner_raises_is_not_swallowed() -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        run([[submit(1, 9)], [], []], Sevens(fails_at=2))


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("pagedd.engine.loop", "torch numpy transformers tokenizers"),
        ("pagedd.engine.main", "torch numpy transformers tokenizers"),
        ("pagedd.daemon", "torch numpy transformers"),
        ("pagedd.client", "torch numpy transformers tokenizers jinja2 pagedd.server"),
    ],
)
def test_what_a_module_does_not_load(module: str, absent: str) -> None:
    code = f"import sys, {module}; print(*(set({absent.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
