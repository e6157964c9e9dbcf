"""A long sequence that goes to host memory and comes back freezes nobody."""

from __future__ import annotations

import json
from pathlib import Path

from pagedd.core.plan import StepPlan, StepResult
from pagedd.core.request import Request, SamplingParams
from pagedd.runtime.swap import STEP_BYTES
from tests.runtime.harness import Bench

STREAMS = 7
LONG = 3200  # tokens
PAGE_SIZE = 32
CONFIG = {  # little to compute, and much to copy
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 64,
    "num_hidden_layers": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


class Streams:
    """A few that decode all the time, and a long one that gives way and comes back."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(CONFIG))
        self.bench = Bench(
            folder,
            load_format="dummy",
            prefix_cache=False,
            preemption_mode="swap",
            max_num_seqs=STREAMS + 1,
            num_pages=LONG // PAGE_SIZE + 5 * STREAMS,
            page_size=PAGE_SIZE,
        )
        self.submitted = 0
        for _ in range(STREAMS):
            self.submit(5, 200)
        self.submit(LONG, 200, priority=1)
        while True:
            plan, _ = self.step()
            if len(plan.chunks) == plan.num_tokens == STREAMS + 1:
                break

    def submit(self, prompt: int, answer: int, priority: int = 0) -> None:
        params = SamplingParams(max_tokens=answer, temperature=0.0, ignore_eos=True)
        tokens = tuple((7 * self.submitted + i) % 500 for i in range(prompt))
        self.bench.scheduler.submit(Request(self.submitted, tokens, params, priority), 0.0)
        self.submitted += 1

    def step(self) -> tuple[StepPlan, StepResult]:
        scheduler, runner = self.bench.scheduler, self.bench.runner
        plan = scheduler.plan(0.0)
        assert plan is not None
        result = runner.execute(plan)
        scheduler.commit(plan, result, 0.0, runner.phases)
        assert not scheduler.take_events().failed
        return plan, result


def test_a_step_copies_no_more_than_takes_a_fraction_of_it(tmp_path: Path) -> None:
    streams = Streams(tmp_path)
    most = STEP_BYTES["cpu"] // streams.bench.shape.page_bytes
    pages = LONG // PAGE_SIZE
    assert pages > 1.5 * most, "it goes, and comes, in pieces"
    streams.submit(40 * PAGE_SIZE, 3)  # takes over pages that are still to be copied out
    steps = [streams.step() for _ in range(25)]
    assert sum(len(plan.swap_out) for plan, _ in steps) >= pages
    assert sum(len(plan.swap_in) for plan, _ in steps) >= pages
    assert max(result.copied for _, result in steps) <= most
    assert min(len(plan.chunks) for plan, _ in steps) >= STREAMS, "no stream is left out"
