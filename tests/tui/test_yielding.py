"""When the dashboard steps back."""

from __future__ import annotations

from pagedd_tui.clock import Rate
from pagedd_tui.yielding import BUSY_BELOW, CALM_ABOVE, LOOK_EVERY_S, Busy, CpuTimes, cpu_times


class Cores:
    """Two cores that are idle as they are told."""

    def __init__(self) -> None:
        self.idle = self.total = 0.0

    def go_on(self, share: float) -> None:
        self.idle += 2 * LOOK_EVERY_S * share
        self.total += 2 * LOOK_EVERY_S

    def read(self) -> CpuTimes:
        return CpuTimes(self.idle, self.total)


def looks(*shares: float) -> list[bool]:
    """What is seen of each second."""
    cores = Cores()
    busy = Busy(cores.read)
    seen, now = [], 100.0
    for share in shares:
        cores.go_on(share)
        now += LOOK_EVERY_S
        seen.append(busy.look(now))
    return seen


def test_it_is_busy_when_few_cores_are_idle_and_calm_when_they_are_again() -> None:
    between = (BUSY_BELOW + CALM_ABOVE) / 2
    assert looks(0.9, 0.05, between, 0.6, between) == [False, True, True, False, False]


def test_it_looks_once_a_second() -> None:
    cores = Cores()
    busy = Busy(cores.read)
    cores.go_on(0.5)
    assert not busy.look(10.0)
    cores.go_on(0.0)
    assert not busy.look(10.0 + LOOK_EVERY_S / 2)
    assert busy.look(10.0 + LOOK_EVERY_S)


def test_time_that_stands_still_says_nothing() -> None:
    busy = Busy(Cores().read)
    assert not busy.look(1.0)
    assert not busy.look(5.0)


def test_the_times_of_this_machine_go_on() -> None:
    first = cpu_times()
    assert 0 <= first.idle <= first.total
    assert cpu_times().total >= first.total


def test_a_rate_that_eases_comes_less_often_but_at_once_when_hurried() -> None:
    rate = Rate(10.0)
    rate.least = 0.4
    due = [number / 10 for number in range(1, 14) if rate.due(number / 10)]
    assert due == [0.1, 0.5, 0.9, 1.3]
    rate.hurry()
    assert rate.due(1.31)
    rate.least = 0.0
    assert rate.due(1.41)
