"""Story: what is heard of one request, and whether that makes sense."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pagedd.core.events import Failed, Finished, Preempted, Reprioritized, Resumed, Started, Token
from pagedd.core.request import Request
from pagedd.core.scheduler import SchedulerConfig
from tests.core.symbolic import Alone, run_alone


@dataclass
class Story:
    """Each event is checked against those before it, and each token against the oracle.

    ``late``: tokens are heard of after the next plan was made, so that the one that was under way
    at a preemption comes after it.
    """

    request: Request
    submitted: float
    config: SchedulerConfig
    late: bool = False
    asked: int = 0
    priority: int = 0  # of now
    waited: float = 0.0  # seconds in which nothing of it ran, since it asked for its priority
    started: float | None = None
    cached_tokens: int = 0
    tokens: dict[int, list[Token]] = field(default_factory=dict)
    alone: dict[int, Alone] = field(default_factory=dict)  # what each choice has to draw
    away: set[int] = field(default_factory=set)  # choices preempted and not resumed
    under_way: set[int] = field(default_factory=set)  # of these, those that may be heard of once
    preemptions: int = 0
    cancelled: bool = False
    ended_choices: set[int] = field(default_factory=set)
    finished: Finished | None = None
    failed: Failed | None = None
    page_seconds: float = 0.0
    pages_peak: int = 0

    @property
    def over(self) -> bool:
        return self.finished is not None or self.failed is not None

    def drawn(self, index: int = 0) -> tuple[int, ...]:
        return tuple(token.token for token in self.tokens.get(index, ()))

    def reprioritize(self, change: Reprioritized) -> None:
        assert not self.over
        assert change.before == self.priority
        assert not change.aged or change.priority < change.before
        self.priority = change.priority

    def start(self, started: Started, now: float) -> None:
        assert self.started is None
        assert not self.over
        self.started = now
        self.cached_tokens = started.cached_tokens
        assert started.cached_tokens < len(self.request.prompt)
        assert started.queued_ms == pytest.approx(1e3 * (now - self.submitted))

    def preempt(self, preempted: Preempted) -> None:
        assert self.started is not None
        assert preempted.choice not in self.away
        self.away.add(preempted.choice)
        if self.late:
            self.under_way.add(preempted.choice)
        self.preemptions += 1

    def resume(self, resumed: Resumed) -> None:
        self.away.remove(resumed.choice)
        self.under_way.discard(resumed.choice)

    def draw(self, token: Token) -> None:
        assert self.started is not None
        assert not self.over
        if token.choice in self.away:
            self.under_way.remove(token.choice)
        assert not self.cancelled, "a token after the cancel"
        assert token.choice not in self.ended_choices, "a token after the choice was ended"
        drawn = self.tokens.setdefault(token.choice, [])
        assert not drawn or drawn[-1].finish is None, "a token after the last one"
        drawn.append(token)
        alone = self.alone.get(token.choice)
        if alone is None:
            alone = self.alone[token.choice] = run_alone(self.request, token.choice, self.config)
        assert token.token == alone.tokens[len(drawn) - 1]
        last = len(drawn) == len(alone.tokens)
        expected = (alone.finish, alone.stop) if last else (None, None)
        assert (token.finish, token.stop) == expected

    def finish(self, finished: Finished, now: float) -> None:
        assert not self.over
        self.finished = finished
        assert finished.cancelled == self.cancelled
        assert finished.cached_tokens == self.cached_tokens
        ledger = finished.ledger
        life = ledger.queued_ms + ledger.prefill_ms + ledger.decode_ms + ledger.preempted_ms
        assert life == pytest.approx(1e3 * (now - self.submitted))
        if self.started is not None:
            assert ledger.queued_ms == pytest.approx(1e3 * (self.started - self.submitted))
        assert ledger.preemptions == self.preemptions
        assert ledger.page_seconds == pytest.approx(self.page_seconds)
        assert ledger.pages_peak == self.pages_peak
        if not self.cancelled:
            for index in set(range(self.request.params.n)) - self.ended_choices:
                assert self.tokens[index][-1].finish is not None

    def fail(self, failed: Failed) -> None:
        assert not self.over
        self.failed = failed
