"""What a step costs outside the model, for ``pagedd bench scaling``: one JSON line on its output.

Decoding sequences, one token each a step, over everything that the engine does for them but the
forward pass: a runner that keeps the batch and the sampling rows and draws a constant. In CPU time,
so that other programs do not count. Run as ``python -m pagedd.runtime.bench_steps JSON``, JSON an
object with ``counts``, ``context``, ``page_size`` and ``steps``.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from statistics import median
from time import process_time

import msgspec
import torch
from torch import Tensor

from pagedd.core.plan import StepPlan, StepResult
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.engine.messages import Step
from pagedd.runtime.batch import Batch
from pagedd.runtime.sampler import Sampler
from pagedd.runtime.sampling_rows import SamplingRows

VOCAB_SIZE = 50_000
TOKEN = 5
CHUNK = 8192  # prompts are brought in in such steps


class ConstantDraws:
    """Every row draws TOKEN, whatever the logits are."""

    def argmax(self, logits: Tensor) -> Tensor:
        return torch.full((logits.shape[0],), TOKEN)

    def draw(self, logits: Tensor, inv_temperature: Tensor, u: Tensor) -> Tensor:
        return torch.full((logits.shape[0],), TOKEN)


class FakeRunner:
    """A runner without a model; ``phases``: CPU seconds of build and sample of the last step."""

    def __init__(self, max_num_seqs: int, max_model_len: int, page_size: int) -> None:
        self.batch = Batch(
            max_num_seqs=max_num_seqs,
            max_tokens=CHUNK,
            max_model_len=max_model_len,
            page_size=page_size,
        )
        rows = SamplingRows(
            max_num_seqs=max_num_seqs, vocab_size=VOCAB_SIZE, eos_ids=frozenset(), seed=0
        )
        self.sampler = Sampler(rows, ConstantDraws())
        self.logits = torch.zeros(max_num_seqs, 1)
        self.phases: dict[str, float] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        """Leave, join, grow, build; then draw."""
        began = process_time()
        for slot in plan.leave:
            self.sampler.leave(slot)
        for join in plan.join:
            self.batch.join(join)
            self.sampler.join(join)
        for grow in plan.grow:
            self.batch.grow(grow)
        self.batch.build(plan.chunks)
        built = process_time()
        slots = [slot for chunk in plan.chunks for slot in chunk.samples]
        counts = self.batch.num_tokens[slots]
        sampled = self.sampler.sample(self.logits[: len(slots)], slots, counts) if slots else []
        tokens = torch.full((len(slots),), TOKEN).numpy()
        self.batch.append(torch.tensor(slots, dtype=torch.int64).numpy(), tokens)
        self.phases = {"build": built - began, "execute": 0.0, "sample": process_time() - built}
        return StepResult(tuple(sampled))


def measure(count: int, context: int, page_size: int, steps: int) -> dict[str, float]:
    """Median microseconds of each phase of a step of ``count`` decoding sequences."""
    prefill_steps = count * (context + page_size) // CHUNK + 1
    longest = context + page_size + prefill_steps + 2 * steps
    scheduler = Scheduler(
        SchedulerConfig(
            num_pages=count * (longest // page_size + 2),
            page_size=page_size,
            max_num_seqs=count,
            max_num_batched_tokens=CHUNK,
            max_model_len=longest,
            max_queue=count,
            eos_ids=frozenset(),
        ),
        key=b"bench",
    )
    runner = FakeRunner(count, longest, page_size)
    draw = random.Random(0)
    for handle in range(count):
        # lengths differ, or all would fill a page in the same step
        prompt = tuple(draw.randrange(6, VOCAB_SIZE) for _ in range(context + handle % page_size))
        params = SamplingParams(max_tokens=longest, temperature=0.0)
        scheduler.submit(Request(handle=handle, prompt=prompt, params=params), 0.0)
    encoder = msgspec.msgpack.Encoder()
    taken: list[dict[str, float]] = []
    decoded = 0
    for number in range(100 * steps):
        phases, drawn = _step(scheduler, runner, encoder, number / 100)
        if drawn == count:
            decoded += 1
            if decoded > steps // 10:  # those before it warm up
                taken.append(phases)
        if len(taken) == steps:
            break
    return {name: 1e6 * median(each[name] for each in taken) for name in taken[0]}


def _step(
    scheduler: Scheduler, runner: FakeRunner, encoder: msgspec.msgpack.Encoder, now: float
) -> tuple[dict[str, float], int]:
    """One turn of the engine's loop: CPU seconds by phase, and the tokens drawn."""
    began = process_time()
    plan = scheduler.plan(now)
    assert plan is not None
    planned = process_time()
    result = runner.execute(plan)
    executed = process_time()
    scheduler.commit(plan, result, now, runner.phases)
    events, stats = scheduler.take_events(), scheduler.stats()
    committed = process_time()
    encoder.encode(Step(events, stats, runner.phases))
    phases = {
        "plan": planned - began,
        "build": runner.phases["build"],
        "sample": runner.phases["sample"],
        "commit": committed - executed,
        "send": process_time() - committed,
    }
    return phases, len(events.tokens)


def main(argv: Sequence[str]) -> int:
    job = json.loads(argv[0])
    torch.set_num_threads(1)
    points = [
        {"sequences": count} | measure(count, job["context"], job["page_size"], job["steps"])
        for count in job["counts"]
    ]
    print(json.dumps(points))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
