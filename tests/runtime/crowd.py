"""Twelve requests that sample in every way, for a pool that cannot hold them together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagedd.core.request import SamplingParams
from pagedd.models.load import LoadedModel
from tests.runtime.harness import PAGE_BYTES, Asked, Bench, Outcome
from tests.tiny.tokenizer import EOS

PAGE_SIZE = 8
NUM_PAGES = 24
PAGES_NEEDED = 60

# Tokens of the prompt (of every even one's the first nine are common), tokens to draw, sampling.
# Short prompts and long answers: all are admitted soon, and then grow out of the pool.
LOAD: list[tuple[int, int, dict[str, Any]]] = [
    (3, 36, {"temperature": 0.0}),
    (7, 32, {"seed": 11}),
    (10, 26, {"temperature": 0.0, "frequency_penalty": 0.8, "repetition_penalty": 1.3}),
    (5, 35, {"seed": 12, "top_p": 0.8, "presence_penalty": 0.5}),
    # wants to end with every token, and may with the 25th
    (2, 40, {"temperature": 0.0, "min_tokens": 25, "logit_bias": {EOS: 100.0}}),
    (10, 24, {"seed": 13, "n": 2}),
    (12, 22, {"temperature": 0.0, "logprobs": 2}),
    (11, 28, {"seed": 14, "temperature": 1.5, "logprobs": 3}),
    (14, 25, {"temperature": 0.0, "presence_penalty": -1.0, "frequency_penalty": 0.4}),
    (1, 37, {"seed": 15, "top_k": 30, "min_p": 0.02, "repetition_penalty": 1.2}),
    (16, 15, {"seed": 16, "frequency_penalty": 1.5, "logprobs": 0}),
    (5, 19, {"temperature": 0.0, "logprobs": 1, "repetition_penalty": 0.9}),
]


def load() -> list[Asked]:
    """The twelve requests."""
    rng = random.Random(4)
    common = [rng.randrange(5, 250) for _ in range(9)]
    result: list[Asked] = []
    for which, (length, new, sampling) in enumerate(LOAD):
        own = [rng.randrange(5, 250) for _ in range(length)]
        prompt = own if which % 2 else (common + own)[:length]
        ends = "min_tokens" in sampling
        params = SamplingParams(max_tokens=new, ignore_eos=not ends, **sampling)
        result.append((prompt, params))
    return result


@dataclass(frozen=True)
class Crowd:
    """The requests, the model, and what each gives by itself with nothing shared."""

    loaded: LoadedModel
    requests: list[Asked]
    expected: list[list[Outcome]]

    @classmethod
    def of(cls, model: Path, **config: Any) -> Crowd:
        """Ask each alone of a pool without end."""
        huge = Bench(model, num_pages=200, page_size=PAGE_SIZE, prefix_cache=False, **config)
        requests = load()
        expected = [huge.run([request])[0] for request in requests]
        assert huge.preemptions == 0
        return cls(huge.loaded, requests, expected)

    def tight(self, **config: Any) -> Bench:
        """A pool of 24 pages. ``lazy``: whatever can be copied in pieces is, page by page."""
        if config.get("lazy"):
            config["swap_in_pages"] = 1
        values = {"num_pages": NUM_PAGES, "page_size": PAGE_SIZE, "max_num_seqs": 13}
        return Bench(self.loaded, **(values | config))

    def order(self, turn: int) -> list[int]:
        """An order of arrival; in three turns everybody is once among the first four."""
        count = len(self.requests)
        mixed = random.Random(turn // 3).sample(range(count), count)
        return [mixed[(place + 4 * turn) % count] for place in range(count)]

    def serve(self, bench: Bench, **how: Any) -> None:
        """All at once; every answer and every count is as it must be."""
        first = bench.handle
        self.check(bench.run(self.requests, **how))
        check_counts(bench)
        check_ledgers(bench, first, len(self.requests))

    def check(self, got: Sequence[Sequence[Outcome]]) -> None:
        """The answers are those of the requests alone, bit for bit if the backend promises it."""
        exact = self.loaded.backend.name == "cpu"
        for which, (choices, references) in enumerate(zip(got, self.expected, strict=True)):
            for choice, reference in zip(choices, references, strict=True):
                assert choice.tokens == reference.tokens, f"request {which}"
                assert choice.finish == reference.finish
                assert len(choice.logprobs) == len(reference.logprobs)
                off = max(_distances(choice, reference), default=0.0)
                assert off <= (0.0 if exact else 1e-4), f"request {which}"


def _distances(one: Outcome, other: Outcome) -> list[float]:
    """How far the log-probabilities are apart, those of the alternatives by rank."""
    distances = [abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)]
    for mine, others in zip(one.top, other.top, strict=True):
        pairs = zip(mine, others, strict=True)
        distances += [abs(a.logprob - b.logprob) for a, b in pairs]
    return distances


def check_counts(bench: Bench) -> None:
    """The counters are what the plans add up to, and both pools are whole."""
    stats, tally = bench.scheduler.stats(), bench.tally
    for handle, end in bench.finished.items():
        assert end.ledger.recomputed_tokens == tally.recomputed[handle]
        swapped = end.ledger.swapped_bytes // PAGE_BYTES
        if bench.whole:
            assert swapped == tally.swapped[handle]
        else:  # who gave way before all its pages were back has copied some of them in vain
            assert swapped >= tally.swapped[handle]
    assert stats.recomputed_tokens == tally.recomputed.total()
    swapped_bytes = sum(end.ledger.swapped_bytes for end in bench.finished.values())
    assert stats.swapped_bytes == swapped_bytes
    assert stats.spilled_pages == tally.saved
    modes = [event.mode for event in bench.preempted]
    assert (stats.preemptions_swap, stats.preemptions_recompute) == (
        modes.count("swap"),
        modes.count("recompute"),
    )
    assert (stats.running, stats.waiting, stats.swapped) == (0, 0, 0)
    assert stats.pages.free + stats.pages.cached == stats.pages.total
    assert stats.host_pages.free + stats.host_pages.cached == stats.host_pages.total


def check_ledgers(bench: Bench, first: int, count: int) -> None:
    """Every request has one end that counts its preemptions, and each of them was made good."""
    away = bench.preemptions_of(first, count)
    back = [(event.handle, event.choice) for event in bench.resumed]
    assert sorted(back) == sorted((event.handle, event.choice) for event in bench.preempted)
    for which in range(count):
        assert bench.finished[first + which].ledger.preemptions == away[which]
