"""The number of threads: what was asked for stays, and a runner follows its governor."""

from __future__ import annotations

import pytest

from pagedd.core.plan import StepPlan, StepResult
from pagedd.runtime.governor import Governor
from pagedd.runtime.threads import GovernedRunner, govern
from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.reference import TorchBackend

PLAN = StepPlan(0, (), (), (), (), (), (), ())


class FakeRunner:
    """Does nothing, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.phases = {"build": 1.0}
        self._error = error

    def prepare(self) -> bool:
        return True

    def execute(self, plan: StepPlan) -> StepResult:
        if self._error is not None:
            raise self._error
        return StepResult(())


class FakeGovernor(Governor):
    """Wants the next of ``numbers`` after each step."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(4)
        self._numbers = iter(numbers)
        self.seen: list[tuple[float, float, int]] = []

    def step(self, seconds: float, busy: float, rows: int) -> None:
        self.seen.append((seconds, busy, rows))
        self.threads = next(self._numbers)


def test_a_number_that_was_asked_for_is_kept() -> None:
    backend, runner = CpuBackend(2), FakeRunner()
    assert govern(runner, backend, 2) is runner
    assert govern(runner, CpuBackend(1), None) is runner
    assert govern(runner, TorchBackend(), None) is runner
    assert isinstance(govern(runner, backend, None), GovernedRunner)


def test_the_pool_has_what_the_governor_wants_from_the_next_step_on() -> None:
    backend, governor = CpuBackend(4), FakeGovernor(3, 3, 4)
    runner = GovernedRunner(FakeRunner(), backend, governor)
    numbers = []
    for _ in range(3):
        assert runner.execute(PLAN) == StepResult(())
        numbers.append(backend.threads)
    assert numbers == [3, 3, 4]
    assert runner.phases == {"build": 1.0}
    assert all(seconds > 0 and busy >= 0 for seconds, busy, _ in governor.seen)


def test_a_step_that_failed_is_no_measurement() -> None:
    governor = FakeGovernor()
    runner = GovernedRunner(FakeRunner(RuntimeError("no")), CpuBackend(2), governor)
    with pytest.raises(RuntimeError, match="no"):
        runner.execute(PLAN)
    assert governor.seen == []
