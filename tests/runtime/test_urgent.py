"""An urgent request among less urgent ones that have all slots: when it starts, in steps."""

from __future__ import annotations

import random

import pytest

from pagedd.core.request import Request, SamplingParams
from pagedd.models.load import LoadedModel
from tests.runtime.harness import Asked, Bench
from tests.tiny.models import build

BUDGET = 48


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return Bench(build("llama", tmp_path_factory.mktemp("tiny") / "llama"), num_pages=4).loaded


def request(length: int, new: int, seed: int) -> Asked:
    rng = random.Random(seed)
    prompt = [rng.randrange(5, 250) for _ in range(length)]
    return prompt, SamplingParams(max_tokens=new, temperature=0.0, ignore_eos=True)


@pytest.mark.parametrize("length", [1, 20, 100])
@pytest.mark.parametrize("pages_each", [20, 4])
@pytest.mark.parametrize("slots", [2, 8])
@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_it_starts_in_the_next_step(
    loaded: LoadedModel, mode: str, slots: int, pages_each: int, length: int
) -> None:
    """With enough pages for each of those that run, or with so few that they are all taken."""
    bench = Bench(
        loaded,
        num_pages=max(slots * pages_each, 20),
        page_size=8,
        max_num_seqs=slots,
        max_num_batched_tokens=BUDGET,
        preemption_mode=mode,
    )
    low = [request(20, 80, seed) for seed in range(slots)]
    urgent = request(length, 3, 99)
    asked = [*low, urgent]
    for handle, (prompt, params) in enumerate(low):
        bench.scheduler.submit(Request(handle, tuple(prompt), params, priority=1), bench.now)
    running: set[int] = set()
    while len(running) < slots and bench.scheduler.stats().pages.free > 1:
        running.update(event.handle for event in bench.step().tokens)
    handle = len(low)
    bench.scheduler.submit(Request(handle, tuple(urgent[0]), urgent[1], priority=0), bench.now)
    first = bench.step()
    assert handle in {event.handle for event in first.started}, "it starts with the next plan"
    assert first.preempted
    seen = [first]
    while not any(event.handle == handle for event in seen[-1].tokens):
        seen.append(bench.step())
    # decodes go first: the others may take one row each of every step
    assert len(seen) <= -(-length // (BUDGET - (slots - 1)))
    assert not bench.finished
    while not bench.scheduler.idle:
        bench.step()
    assert next(iter(bench.finished)) == handle
    assert bench.finished[handle].ledger.preemptions == 0
    assert len(bench.finished) == len(asked)
