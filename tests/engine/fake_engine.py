"""An engine process without a model: the real link, loop and scheduler over a runner that echoes.

Started by a Supervisor as ``python -m tests.engine.fake_engine OPTIONS``, OPTIONS being JSON. A
choice's text is its prompt, again and again. A request's ``seed`` may be a spell, below.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pagedd.core.plan import Join, Sampled, StepPlan, StepResult, TokenLogprobs, TopLogprob
from pagedd.engine.main import Engine, Progress, build_scheduler, start_process
from pagedd.engine.messages import EngineConfig, Ready
from pagedd.errors import ModelNotFound

CRASH = -1001  # the first step with this request raises
NAN = -1002  # the second token of this request cannot be drawn
BLOCK = -1003  # the first step with this request hangs at ``block_gate``
SLOW = -1004  # each step with this request takes SLOW_S more
SLOW_S = 0.02


class Options(msgspec.Struct, frozen=True):
    """How this engine behaves. Times in seconds; a gate is a FIFO that somebody else opens."""

    text_dir: str
    step_s: float = 0.001  # what a step takes
    block_gate: str | None = None
    load_gate: str | None = None
    missing: bool = False  # the model is not there
    broken: str | None = None  # loading raises this, unexpectedly
    broken_from: str | None = None  # loading fails from when this file is there
    log_starts: str | None = None  # a file that gets a line for every start
    note: str = "a note"
    vocab_size: int = 300
    max_model_len: int = 256
    num_pages: int = 64
    num_host_pages: int = 0
    page_size: int = 8
    page_bytes: int = 1024
    max_num_seqs: int = 16
    budget: int = 64


def wait_at(gate: str | None) -> None:
    """Until somebody opens it for writing."""
    if gate is not None:
        Path(gate).read_bytes()


@dataclass
class _Row:
    join: Join
    drawn: int


class FakeRunner:
    """Draws the prompt's tokens in a circle."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._rows: dict[int, _Row] = {}
        self.phases: dict[str, float] = {}

    def prepare(self) -> bool:
        return False

    def execute(self, plan: StepPlan) -> StepResult:
        for slot in plan.leave:
            self._rows.pop(slot, None)
        for join in plan.join:
            self._rows[join.slot] = _Row(join, len(join.tokens) - join.num_prompt)
            if join.params.seed == CRASH:
                raise RuntimeError("the spell says so")
            if join.params.seed == BLOCK:
                wait_at(self._options.block_gate)
        slow = any(row.join.params.seed == SLOW for row in self._rows.values())
        time.sleep(self._options.step_s + slow * SLOW_S)
        self.phases = {"build": 0.0, "execute": self._options.step_s, "sample": 0.0}
        return StepResult(
            tuple(self._draw(slot) for chunk in plan.chunks for slot in chunk.samples)
        )

    def _draw(self, slot: int) -> Sampled:
        row = self._rows[slot]
        params = row.join.params
        if params.seed == NAN and row.drawn == 1:
            return Sampled(slot, -1)
        token = row.join.tokens[row.drawn % row.join.num_prompt]
        row.drawn += 1
        logprobs = None
        if params.logprobs is not None:
            top = tuple(TopLogprob(rank, -1.0 - rank) for rank in range(params.logprobs))
            logprobs = TokenLogprobs(-0.5, top)
        return Sampled(slot, token, logprobs)


def main(argv: list[str]) -> int:
    options = msgspec.convert(json.loads(argv[0]), Options)

    def build(config: EngineConfig, progress: Progress) -> Engine:
        if options.log_starts is not None:
            with Path(options.log_starts).open("a") as log:
                log.write("start\n")
        progress("weights", 0.5)
        wait_at(options.load_gate)
        if options.missing:
            raise ModelNotFound(f"no model at {config.model}")
        if options.broken_from is not None and Path(options.broken_from).exists():
            raise RuntimeError("it is broken now")
        if options.broken is not None:
            raise RuntimeError(options.broken)
        ready = Ready(
            model="fake",
            text_dir=options.text_dir,
            device="cpu",
            dtype="float32",
            vocab_size=options.vocab_size,
            max_model_len=options.max_model_len,
            page_size=options.page_size,
            num_pages=options.num_pages,
            num_host_pages=options.num_host_pages,
            page_bytes=options.page_bytes,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.budget,
            eos_ids=(297,),
            notes=(options.note,),
        )
        scheduler = build_scheduler(config, ready, page_bytes=options.page_bytes)
        return Engine(ready, scheduler, FakeRunner(options))

    return start_process(argv[1:], build)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
