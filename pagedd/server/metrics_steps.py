"""What the metrics count of the engine's steps."""

from __future__ import annotations

from pagedd.core.events import StepEvents
from pagedd.engine.messages import Step
from pagedd.server.metrics_histogram import PHASE_S, TOKENS, Histogram

# What the first of the queue waits for: see ``events.Waiting``; "engine": another one.
LIMITS = ("slots", "pages", "tokens", "turn", "engine")
PHASES = ("plan", "build", "execute", "sample", "commit", "swap", "send")


class StepMeter:
    """Takes every step in."""

    def __init__(self) -> None:
        self.computed = Histogram(TOKENS)
        self.phases = {phase: Histogram(PHASE_S) for phase in PHASES}
        self._rows = 0  # that this engine has computed
        self._first: tuple[int, int] | None = None  # handle and choice of who waits first
        self.limit = "turn"

    def engine_lost(self) -> None:
        """The next one counts from zero."""
        self._rows, self._first, self.limit = 0, None, "turn"

    def step(self, step: Step) -> None:
        """What one step took, and what waits after it."""
        for phase, seconds in step.phases.items():
            histogram = self.phases.get(phase)
            if histogram is None:
                histogram = self.phases[phase] = Histogram(PHASE_S)
            histogram.observe(seconds)
        rows = step.stats.computed_tokens
        if rows > self._rows:
            self.computed.observe(rows - self._rows)
            self._rows = rows
        self._look_at_the_queue(step.events)

    def _look_at_the_queue(self, events: StepEvents) -> None:
        """The engine tells news only: what it told last holds until that one goes on."""
        begun = any((event.handle, 0) == self._first for event in events.started)
        if begun or any((each.handle, each.choice) == self._first for each in events.resumed):
            self._first, self.limit = None, "turn"
        for waiting in events.waiting:
            self._first, self.limit = (waiting.handle, waiting.choice), waiting.limit
