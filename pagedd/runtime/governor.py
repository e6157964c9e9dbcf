"""How many threads the next step should use, decided from how the last ones went.

Beside a program that wants a core, one thread less can be faster: whoever has all cores waits in
every operation for the thread that was put aside. Nobody tells when such a program comes or goes,
but a step shows it: the thread that drives it is *kept waiting*, for a core or for another thread,
and its processor time falls behind the clock. That alone does not say what would be faster, so it
only asks for a trial: short blocks of steps with the present number of threads and with the other
one, in turns, of which the faster number stays. With fewer threads than there could be, nothing
shows that the other program has gone; so the larger number is tried from time to time.

Everything is given as numbers and there is no clock here: time is the sum of the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, variance

KEPT_WAITING = 0.10  # of the time: more than the daemon and the kernel take of a free machine
WEIGHT_S = 0.5  # what is kept waiting is averaged over about so long
BLOCK_STEPS = 8  # at least, and BLOCK_S: long enough for the system to move threads
BLOCK_S = 0.12
SETTLE_STEPS = 2  # of a block, which do not count
BLOCKS = 3  # of each of the two numbers
MOST_BLOCKS = 8  # when the steps were too different to be compared
SAMPLES = 6  # steps of one size, of each number, that are enough
MARGIN = 0.05  # the other number has to be faster by so much,
HOPELESS = 1.3  # times as long as usual, and the trial is over
HOPELESS_STEPS = 3
CONFIDENCE = 1.5  # and so many standard errors of the difference
FIRST_PAUSE_S = 4.0  # between two trials; doubled each time that nothing changes
LONGEST_PAUSE_S = 30.0
QUIET_S = 2.0  # without being kept waiting: what comes then is something new


@dataclass(slots=True)
class _Trial:
    """Steps with ``present`` and with ``other`` threads; seconds by number and size of the step."""

    present: int
    other: int
    blocks: int = 0
    steps: int = 0  # in this block
    seconds: float = 0.0  # in this block
    taken: dict[int, dict[int, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    @property
    def threads(self) -> int:
        """Of this block."""
        return self.other if self.blocks % 2 == 0 else self.present

    def add(self, seconds: float, size: int) -> None:
        """One step; the block may end with it."""
        self.steps += 1
        self.seconds += seconds
        if self.steps > SETTLE_STEPS:
            self.taken[self.threads][size].append(seconds)
        if self.steps >= BLOCK_STEPS and self.seconds >= BLOCK_S:
            self.blocks += 1
            self.steps, self.seconds = 0, 0.0

    def hopeless(self, usual: Mapping[int, float]) -> bool:
        """Each of the first steps with the other number took much longer than steps of its size do.

        A trial of long steps would cost seconds to say the same.
        """
        if self.blocks > 0:
            return False
        tried = [(size, taken) for size, each in self.taken[self.other].items() for taken in each]
        slow = [size in usual and taken > HOPELESS * usual[size] for size, taken in tried]
        return len(slow) >= HOPELESS_STEPS and all(slow)

    def faster(self) -> int | None:
        """The number that stays; None while it is open. The present one when in doubt."""
        if self.blocks < 2 * BLOCKS:
            return None
        mine, others = self.taken[self.present], self.taken[self.other]
        counts = {size: min(len(mine[size]), len(others[size])) for size in mine if size in others}
        size = max(counts, key=lambda each: counts[each], default=-1)
        if size < 0 or counts[size] < SAMPLES:
            return None if self.blocks < 2 * MOST_BLOCKS else self.present
        doubt = CONFIDENCE * sqrt(_error(mine[size]) + _error(others[size]))
        quicker = fmean(others[size]) + doubt < (1 - MARGIN) * fmean(mine[size])
        return self.other if quicker else self.present


def _error(values: list[float]) -> float:
    """The variance of their mean."""
    return variance(values) / len(values)


class Governor:
    """``threads`` is what the next step should use, at least 1 and at most ``most``."""

    def __init__(self, most: int) -> None:
        self.threads = most
        self._most = most
        self._present = most  # outside of trials
        self._waiting = 0.0  # share of the time, an average
        self._since = 0.0  # seconds of steps since the last trial
        self._quiet = 0.0  # seconds of steps since it was last kept waiting
        self._pause = FIRST_PAUSE_S
        self._trial: _Trial | None = None
        self._upwards = False  # the last trial was of a larger number
        self._usual: dict[int, float] = {}  # seconds by size with the present number, averages

    @property
    def trying(self) -> bool:
        """A trial is under way."""
        return self._trial is not None

    def step(self, seconds: float, busy: float, rows: int) -> None:
        """A step of ``rows`` took ``seconds``, of which its own thread computed for ``busy``."""
        if self._most == 1 or seconds <= 0:
            return
        if self._trial is not None:
            self._go_on(self._trial, seconds, rows)
            return
        size = rows.bit_length()
        usual = self._usual.get(size, seconds)
        self._usual[size] = usual + (seconds - usual) / 8
        weight = min(seconds / WEIGHT_S, 1.0)
        lost = min(max(1 - busy / seconds, 0.0), 1.0)
        self._waiting += weight * (lost - self._waiting)
        self._quiet = 0.0 if self._waiting > KEPT_WAITING else self._quiet + seconds
        if self._quiet > QUIET_S and self._present == self._most:
            self._pause = FIRST_PAUSE_S
        self._since += seconds
        if self._since >= self._pause:
            other = self._candidate()
            if other is not None:
                self._trial = _Trial(self._present, other)
                self.threads = self._trial.threads

    def _candidate(self) -> int | None:
        """Which number to try: less when it is kept waiting, more when there could be more."""
        fewer, more = self._present > 1, self._present < self._most
        waits = self._waiting > KEPT_WAITING
        if fewer and waits and (self._upwards or not more):
            return self._present - 1
        return self._present + 1 if more else None

    def _go_on(self, trial: _Trial, seconds: float, rows: int) -> None:
        trial.add(seconds, rows.bit_length())
        chosen = trial.present if trial.hopeless(self._usual) else trial.faster()
        if chosen is None:
            self.threads = trial.threads
            return
        self._upwards = trial.other > trial.present
        self._pause = (
            FIRST_PAUSE_S if chosen != self._present else min(2 * self._pause, LONGEST_PAUSE_S)
        )
        if chosen != self._present:
            self._usual.clear()
        self._present = self.threads = chosen
        self._since = self._waiting = self._quiet = 0.0
        self._trial = None
