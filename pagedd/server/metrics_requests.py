"""What the metrics count of requests: how they ended, and how long they took.

Every request that was sent on to the engine, or cancelled on the way to it, is counted as ended
exactly once, when the status counts it. The times and sizes are of those that ended well: what was
cancelled or failed says nothing about the time that an answer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pagedd.core.events import Failed, Finished, Token
from pagedd.errors import QueueFull
from pagedd.server.metrics_histogram import (
    CHOICES,
    FIRST_S,
    GAP_S,
    REQUEST_S,
    TIMES,
    TOKENS,
    Histogram,
)
from pagedd.server.requests import OpenRequest

REASONS = ("stop", "length", "abort", "error")


class _Open:
    """A request that the engine has, or is to get."""

    __slots__ = ("first", "last", "request", "to_length")

    def __init__(self, request: OpenRequest) -> None:
        self.request = request
        self.first = 0.0  # when its first token came; 0: none has
        self.last = [0.0] * request.who.choices  # when the last one of each choice came
        self.to_length = False  # a choice ended by its length


class RequestMeter:
    """``clock``: seconds, monotonic, the one of ``OpenRequest.arrived``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self.ended = dict.fromkeys(REASONS, 0)
        self.failures: dict[str, int] = {}  # by error code
        self.queue_full = 0  # requests that were refused for it
        self.first_token = Histogram(FIRST_S)
        self.gaps = Histogram(GAP_S)  # between tokens of one choice
        self.per_token = Histogram(GAP_S)  # mean of a request
        self.whole = Histogram(REQUEST_S)
        self.queued = Histogram(REQUEST_S)
        self.inference = Histogram(REQUEST_S)
        self.prefill = Histogram(REQUEST_S)
        self.decode = Histogram(REQUEST_S)
        self.preempted = Histogram(REQUEST_S)
        self.preemptions = Histogram(TIMES)
        self.prompt_tokens = Histogram(TOKENS)
        self.computed_prompt_tokens = Histogram(TOKENS)
        self.generated_tokens = Histogram(TOKENS)
        self.longest_choice = Histogram(TOKENS)
        self.asked_choices = Histogram(CHOICES)
        self.asked_tokens = Histogram(TOKENS)

    def began(self, request: OpenRequest) -> None:
        """It is handed to an engine. What one before that drew of it, nobody has seen."""
        before = self._open.get(request.handle)
        record = self._open[request.handle] = _Open(request)
        if before is not None:
            record.first = before.first

    def tokens(self, tokens: Sequence[Token]) -> None:
        """What one step has drawn; all of it comes at the same moment.

        Nearly all choices got their token before in the same step too, so nearly all gaps are the
        same: they are counted before they are measured.
        """
        now, known = self._clock(), self._open
        since: dict[float, int] = {}
        for handle, choice, _, _, finish, _ in tokens:
            record = known.get(handle)
            if record is None:
                continue
            before = record.last[choice]
            record.last[choice] = now
            if before:
                since[before] = since.get(before, 0) + 1
            elif not record.first:
                record.first = now
                self.first_token.observe(now - record.request.arrived)
            if finish == "length":
                record.to_length = True
        for before, times in since.items():
            self.gaps.observe(now - before, times)

    def finished(self, event: Finished) -> None:
        """The engine says that a request has ended."""
        record = self._open.pop(event.handle, None)
        if record is None:
            return
        if event.cancelled:
            self.ended["abort"] += 1
            return
        reasons = record.request.finish_reasons
        to_length = "length" in reasons or (None in reasons and record.to_length)
        self.ended["length" if to_length else "stop"] += 1
        self._measure(record, event)

    def failed(self, event: Failed) -> None:
        """The engine has refused a request, or could not go on with it."""
        if event.code == QueueFull.code:
            self.queue_full += 1
        self._fail(event.handle, event.code)

    def lost(self, requests: Collection[OpenRequest], code: str) -> None:
        """These ended with an error, and no engine will say so."""
        for request in requests:
            self._fail(request.handle, code)

    def cancelled(self, handle: int | None = None) -> None:
        """It was cancelled while no engine had it; None: on the way to the first one."""
        if handle is None or self._open.pop(handle, None) is not None:
            self.ended["abort"] += 1

    def engine_lost(self, open: Collection[int]) -> int:
        """An engine died. How many of those that it was told to cancel it has not confirmed.

        ``open`` are the handles of the requests that go on.
        """
        leaving = [handle for handle in self._open if handle not in open]
        for handle in leaving:
            self.cancelled(handle)
        return len(leaving)

    def _fail(self, handle: int, code: str) -> None:
        if self._open.pop(handle, None) is not None:
            self.ended["error"] += 1
            self.failures[code] = self.failures.get(code, 0) + 1

    def _measure(self, record: _Open, event: Finished) -> None:
        request, now = record.request, self._clock()
        ledger = request.past.ledger(event.ledger)
        self.whole.observe(now - request.arrived)
        self.queued.observe(ledger.queued_ms / 1e3)
        self.prefill.observe(ledger.prefill_ms / 1e3)
        self.decode.observe(ledger.decode_ms / 1e3)
        self.preempted.observe(ledger.preempted_ms / 1e3)
        self.inference.observe((ledger.prefill_ms + ledger.decode_ms) / 1e3)
        self.preemptions.observe(ledger.preemptions)
        counts = request.token_counts
        longest = max(counts)
        if longest > 1:
            self.per_token.observe((max(record.last) - record.first) / (longest - 1))
        self.prompt_tokens.observe(request.who.prompt_tokens)
        self.computed_prompt_tokens.observe(request.who.prompt_tokens - event.cached_tokens)
        self.generated_tokens.observe(sum(counts))
        self.longest_choice.observe(longest)
        self.asked_choices.observe(len(counts))
        self.asked_tokens.observe(request.core.params.max_tokens)
