"""How cost grows: with requests at once, with the length of the context, and outside the model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

from pagedd.bench.drive import Run
from pagedd.bench.load import Workload
from pagedd.bench.report import output_speed
from pagedd.errors import PageddError
from pagedd.interpreter import borrow_packages, module_command

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128)
FEWEST_REQUESTS = 8
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192)
CONTEXT_ANSWER = 48  # tokens that are decoded at each context
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GAIN = 0.10  # what a doubling has to bring to be worth the longer steps
CHILD = "pagedd.runtime.bench_steps"
OUTSIDE = {"context": 512, "page_size": 32, "steps": 200}


def loads(input_len: int, output_len: int, seed: int) -> Iterator[Workload]:
    """A load for each concurrency: two rounds of requests, and never very few."""
    for number, concurrency in enumerate(CONCURRENCIES):
        yield Workload(
            num_requests=max(2 * concurrency, FEWEST_REQUESTS),
            concurrency=concurrency,
            request_rate=None,
            input_len=input_len,
            output_len=output_len,
            fixed_len=True,
            prefix_len=0,
            seed=seed + 1000 * (number + 1),
            temperature=0.0,
        )


def context_loads(max_model_len: int, seed: int) -> Iterator[Workload]:
    """One request of each length that the model takes, its answer included."""
    for number, context in enumerate(CONTEXTS):
        if context <= max_model_len:
            yield Workload(
                num_requests=1,
                concurrency=1,
                request_rate=None,
                input_len=context - CONTEXT_ANSWER,
                output_len=CONTEXT_ANSWER,
                fixed_len=True,
                prefix_len=0,
                seed=seed + 500_000 + number,
                temperature=0.0,
            )


def concurrency_point(run: Run, load: Workload) -> dict[str, float]:
    """Tokens per second and times in milliseconds of one load."""
    errors = [trace.error for trace in run.traces if trace.error is not None]
    if errors:
        raise PageddError(f"{len(errors)} requests failed: {errors[0]}")
    first = [trace.first - trace.sent for trace in run.traces if trace.first is not None]
    return {
        "concurrency": load.concurrency or 0,
        "tokens_per_s": output_speed(run),
        "ttft_ms": 1000 * median(first),
        "inter_token_ms": 1000 * fmean(gap for trace in run.traces for gap in trace.gaps),
    }


def context_point(run: Run, load: Workload) -> dict[str, float]:
    """The mean time between the tokens of a single request: of a step that only decodes.

    Not the median: a client that is kept waiting for a core gets several at once.
    """
    [trace] = run.traces
    if trace.error is not None:
        raise PageddError(f"a request failed: {trace.error}")
    return {
        "context": load.input_len + load.output_len,
        "step_ms": 1000 * fmean(trace.gaps),
        "prefill_ms": 1000 * ((trace.first or trace.sent) - trace.sent),
    }


def measure_outside() -> list[dict[str, float]]:
    """CPU microseconds by phase of a step without the model, for each of SEQUENCES."""
    job = json.dumps({"counts": SEQUENCES, **OUTSIDE})
    borrow_packages()
    child = subprocess.run([*module_command(CHILD), job], capture_output=True, text=True)
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        raise PageddError(f"the step outside the model could not be measured: {last[0]}")
    points: list[dict[str, float]] = json.loads(child.stdout)
    return points


def scheduling(point: dict[str, float]) -> float:
    """Microseconds of scheduler and batch building."""
    return point["plan"] + point["build"] + point["commit"]


def knee(points: Sequence[dict[str, float]]) -> int:
    """Where ``--max-num-seqs`` should sit: the last doubling that brought GAIN more tokens.

    More than all before it: beyond it every request gets slower and little is gained. One that
    brings little may be followed by one that brings much, as where a kernel takes more rows at
    once. ``points`` are in the order of their concurrency.
    """
    found, best = points[0], points[0]["tokens_per_s"]
    for point in points[1:]:
        if point["tokens_per_s"] >= (1 + GAIN) * best:
            found = point
        best = max(best, point["tokens_per_s"])
    return int(found["concurrency"])


def table(result: dict[str, Any]) -> list[str]:
    """The numbers as lines of text."""
    daemon = result["daemon"]
    lines = [
        f"{daemon['model']} on {daemon['device']}, {daemon['dtype']}; prompts of "
        f"{result['input_len']} tokens, answers of {result['output_len']}",
        "",
        f"  {'requests at once':>18}{'tokens/s':>12}{'first token ms':>16}{'between ms':>12}",
    ]
    lines += [
        f"  {point['concurrency']:>18}{point['tokens_per_s']:>12.1f}{point['ttft_ms']:>16.1f}"
        f"{point['inter_token_ms']:>12.1f}"
        for point in result["concurrency"]
    ]
    lines += [
        f"  --max-num-seqs {result['knee']}: the last doubling that brings {GAIN:.0%} more",
        "",
        f"  {'tokens of context':>18}{'step ms':>12}{'prefill ms':>16}",
    ]
    lines += [
        f"  {point['context']:>18}{point['step_ms']:>12.2f}{point['prefill_ms']:>16.0f}"
        for point in result["context"]
    ]
    phases = [name for name in result["outside"][0] if name != "sequences"]
    heads = "".join(f"{name:>9}" for name in phases)
    lines += ["", f"  {'sequences':>18}{heads}   scheduler and building, CPU µs a step"]
    for point in result["outside"]:
        cells = "".join(f"{point[name]:>9.0f}" for name in phases)
        lines.append(f"  {point['sequences']:>18}{cells}{scheduling(point):>9.0f}")
    return lines
