"""The number of threads beside other programs: made-up series of steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pagedd.runtime.governor import LONGEST_PAUSE_S, Governor

Speed = dict[int, tuple[float, float]]  # threads → relative speed, share of time kept waiting

ALONE: Speed = {1: (1.1, 0.0), 2: (2.0, 0.03)}
# whoever has both cores waits for the one that is shared
BESIDE: Speed = {1: (1.0, 0.04), 2: (0.7, 0.45)}
# kept waiting, and still quicker than with one
CROWDED: Speed = {1: (0.6, 0.3), 2: (0.9, 0.4)}


@dataclass
class Machine:
    """Carries out steps of ``work`` seconds on one quiet core, with some noise."""

    governor: Governor
    noise: float = 0.1
    seconds: float = 0.0  # altogether
    numbers: list[int] = field(default_factory=list)  # of threads outside of trials, as they change
    random: random.Random = field(default_factory=lambda: random.Random(0))

    def run(
        self, speed: Speed, seconds: float, rows: Callable[[], int] = lambda: 8
    ) -> dict[int, float]:
        """Steps for so long; the share of the time with each number of threads."""
        spent = dict.fromkeys(speed, 0.0)
        end = self.seconds + seconds
        while self.seconds < end:
            threads, size = self.governor.threads, rows()
            quick, waiting = speed[threads]
            noise = self.random.uniform(1 - self.noise, 1 + self.noise)
            step = (0.02 + 0.001 * size) / quick * noise
            self.governor.step(step, step * (1 - waiting), size)
            self.seconds += step
            spent[threads] += step / seconds
            if not self.governor.trying and self.numbers[-1:] != [self.governor.threads]:
                self.numbers.append(self.governor.threads)
        return spent


def test_alone_all_threads_stay_and_nothing_is_tried() -> None:
    assert Machine(Governor(2)).run(ALONE, 120)[1] == 0


def test_beside_a_busy_program_one_thread_less_when_that_is_faster() -> None:
    machine = Machine(Governor(2))
    machine.run(ALONE, 60)
    machine.run(BESIDE, 10)
    assert machine.governor.threads == 1 or machine.governor.trying
    assert machine.run(BESIDE, 120)[1] > 0.9, "trials take a small part of the time"
    assert machine.numbers == [2, 1], "no flapping"


def test_all_threads_stay_when_that_is_faster_though_it_is_kept_waiting() -> None:
    machine = Machine(Governor(2))
    assert machine.run(CROWDED, 120)[2] > 0.9
    assert machine.numbers == [2]


def test_of_long_steps_a_few_show_that_one_thread_less_is_much_slower() -> None:
    """Blocks of them in turns would take a quarter of the time."""
    prefill: Speed = {1: (1.0, 0.0), 2: (1.7, 0.15)}
    machine = Machine(Governor(2))
    assert 0 < machine.run(prefill, 60, lambda: 256)[1] < 0.15
    assert machine.numbers == [2]


def test_when_the_other_program_is_gone_all_threads_come_back() -> None:
    machine = Machine(Governor(2))
    machine.run(BESIDE, 120)
    machine.run(ALONE, LONGEST_PAUSE_S + 5)
    assert machine.run(ALONE, 30)[1] == 0
    assert machine.numbers == [2, 1, 2]
    machine.run(BESIDE, 10)  # and it is as quick as the first time when another one comes
    assert machine.run(BESIDE, 20)[1] > 0.7


@pytest.mark.parametrize("seed", range(5))
def test_numbers_that_are_equally_fast_do_not_alternate(seed: int) -> None:
    same = {1: (1.0, 0.2), 2: (1.02, 0.3)}
    machine = Machine(Governor(2), noise=0.3, random=random.Random(seed))
    machine.run(same, 600)
    assert len(machine.numbers) <= 3


def test_prompts_among_the_steps_are_compared_with_their_like() -> None:
    draw = random.Random(1)
    machine = Machine(Governor(2))
    sizes = [8] * 5 + [200]
    assert machine.run(BESIDE, 120, lambda: draw.choice(sizes))[1] > 0.8
    assert machine.numbers == [2, 1]


def test_steps_that_cannot_be_compared_change_nothing() -> None:
    """Each as large as no other near it."""
    sizes = iter([2**at for at in range(30)] * 100_000)
    governor = Governor(2)
    for _ in range(20_000):
        quick, waiting = BESIDE[governor.threads]
        governor.step(0.05 / quick, 0.05 / quick * (1 - waiting), next(sizes))
        assert governor.trying or governor.threads == 2


def test_of_many_threads_as_many_go_as_help() -> None:
    """Eight cores, two of them taken: more threads than there are cores wait for each other."""
    taken = {n: (float(n), 0.02) if n <= 6 else (6.0 - (n - 6), 0.3) for n in range(1, 9)}
    machine = Machine(Governor(8))
    machine.run(taken, 60)
    assert machine.run(taken, 120)[6] > 0.8
    assert machine.numbers == [8, 7, 6]


def test_one_thread_is_the_least() -> None:
    machine = Machine(Governor(1))
    assert machine.run({1: (0.5, 0.6)}, 60)[1] == pytest.approx(1, abs=0.01)
