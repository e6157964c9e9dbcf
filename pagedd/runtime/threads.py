"""Who may use how many cores."""

from __future__ import annotations

from time import perf_counter, thread_time
from typing import Protocol

import torch

from pagedd.core.plan import StepPlan, StepResult
from pagedd.runtime.governor import Governor
from pagedd_kernels.backend import Backend
from pagedd_kernels.cpu.backend import CpuBackend


class StepRunner(Protocol):
    """What is governed: see ``engine.loop.Runner``."""

    @property
    def phases(self) -> dict[str, float]: ...

    def execute(self, plan: StepPlan) -> StepResult: ...

    def prepare(self) -> bool: ...


def share_cores(backend: Backend, threads: int | None) -> None:
    """Give the cores to the one pool of threads that computes; ``threads`` None: its own choice.

    With the compiled kernels torch keeps one thread: its pool spins while it waits, and two pools
    on the same cores cost a third of the throughput.
    """
    if isinstance(backend, CpuBackend):
        torch.set_num_threads(1)
        if threads is not None:
            backend.set_threads(threads)
    elif threads is not None:
        torch.set_num_threads(threads)


def govern(runner: StepRunner, backend: Backend, threads: int | None) -> StepRunner:
    """``runner``, its number of threads fitted to what other programs leave of the cores.

    Only where nobody asked for a number, and with kernels whose results do not depend on it.
    """
    if threads is not None or not isinstance(backend, CpuBackend) or backend.threads == 1:
        return runner
    return GovernedRunner(runner, backend, Governor(backend.threads))


class Threads(Protocol):
    """A pool of threads."""

    @property
    def threads(self) -> int: ...

    def set_threads(self, threads: int) -> None: ...


class GovernedRunner:
    """Carries a plan out, and then has the number of threads that the governor wants."""

    def __init__(self, runner: StepRunner, pool: Threads, governor: Governor) -> None:
        self._runner = runner
        self._pool = pool
        self._governor = governor

    @property
    def phases(self) -> dict[str, float]:
        """Those of the runner."""
        return self._runner.phases

    def prepare(self) -> bool:
        """See ``engine.loop.Runner``."""
        return self._runner.prepare()

    def execute(self, plan: StepPlan) -> StepResult:
        """See ``engine.loop.Runner``. A step that raises is no measurement."""
        governor = self._governor
        began, computed = perf_counter(), thread_time()
        result = self._runner.execute(plan)
        governor.step(perf_counter() - began, thread_time() - computed, plan.num_tokens)
        if governor.threads != self._pool.threads:
            self._pool.set_threads(governor.threads)
        return result
