"""What running short of pages costs: the same load under each policy and mode, and without it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from pagedd.bench.drive import DaemonRun
from pagedd.bench.load import Item, around, random_tokens
from pagedd.bench.report import daemon_facts, percentile, same_answers

MODES = ("swap", "recompute", "auto")
# Every other request is short, the rest are long: so many times as long.
LONG_TO_SHORT = 3
# The pool has so many times fewer pages than all requests would fill together at their ends.
SHORTAGE = 5


class Setting(NamedTuple):
    """Who gives way and how. None: the pool is so large that nobody has to."""

    policy: str | None
    mode: str | None

    @property
    def name(self) -> str:
        """For a line of progress, and as a key."""
        return "no preemption" if self.policy is None else f"{self.policy}, {self.mode}"


REFERENCE = Setting(None, None)


@dataclass(frozen=True, slots=True)
class Shortage:
    """The load and the pools. Lengths in tokens are means over the short and the long ones."""

    num_requests: int
    input_len: int
    output_len: int
    page_size: int
    num_pages: int | None = None  # of the small pool; None: SHORTAGE says

    def lengths(self, seed: int) -> list[tuple[int, int]]:
        """Prompt and answer of each request: the same ones for the same seed."""
        return self._lengths(random.Random(seed))

    def items(self, vocab_size: int, seed: int) -> list[Item]:
        """The requests, of these :meth:`lengths`."""
        draw = random.Random(seed)
        lengths = self._lengths(draw)
        return [Item(random_tokens(draw, prompt, vocab_size), out, 0.0) for prompt, out in lengths]

    def pools(self, seeds: Sequence[int]) -> tuple[int, int]:
        """Pages of the small and of the large pool, for all of the seeds."""
        pages = [[-(-sum(pair) // self.page_size) for pair in self.lengths(s)] for s in seeds]
        most = max(sum(each) for each in pages)
        longest = max(max(each) for each in pages)
        return self.num_pages or max(most // SHORTAGE, longest), most

    def _lengths(self, draw: random.Random) -> list[tuple[int, int]]:
        kinds = [self._kind(draw, times) for times in (1, LONG_TO_SHORT)]
        return [kinds[i % 2][i // 2] for i in range(self.num_requests)]

    def _kind(self, draw: random.Random, times: int) -> list[tuple[int, int]]:
        count, share = (self.num_requests + 1) // 2, 2 * times / (1 + LONG_TO_SHORT)
        prompts = around(draw, max(round(self.input_len * share), 1), count)
        answers = around(draw, max(round(self.output_len * share), 1), count)
        return list(zip(prompts, answers, strict=True))


def settings(policies: Sequence[str]) -> list[Setting]:
    """What is measured, in the order of the table."""
    return [REFERENCE, *(Setting(policy, mode) for policy in policies for mode in MODES)]


def schedule(policies: Sequence[str], seeds: Sequence[int]) -> list[tuple[int, Setting]]:
    """(seed, setting) in the order of the runs: forth and back, so that a machine that becomes
    slower or faster meanwhile does so for all alike."""
    forth = settings(policies)
    return [
        (seed, setting)
        for repeat, seed in enumerate(seeds)
        for setting in (forth[::-1] if repeat % 2 else forth)
    ]


def figures(run: DaemonRun, reference: DaemonRun) -> dict[str, float]:
    """One run as numbers; times in milliseconds but for ``seconds``."""
    whole = [trace for trace in run.traces if trace.ended is not None]
    gaps = [gap for trace in whole for gap in trace.gaps] or [0.0]
    seconds = max(run.ended - run.began, 1e-9)
    before, after = run.before, run.after
    return {
        "completed": len(whole),
        "failed": len(run.traces) - len(whole),
        "seconds": seconds,
        "output_tokens_per_s": sum(trace.tokens for trace in whole) / seconds,
        "p99_gap_ms": 1000 * percentile(gaps, 99),
        "most_gap_ms": 1000 * max(gaps),
        "preemptions_swap": after.preemptions.swap - before.preemptions.swap,
        "preemptions_recompute": after.preemptions.recompute - before.preemptions.recompute,
        "recomputed_tokens": after.recomputed_tokens - before.recomputed_tokens,
        "swapped_bytes": after.swapped_bytes - before.swapped_bytes,
        "same_answers": same_answers(run, reference),
    }


def summarise(
    load: Shortage, seeds: Sequence[int], runs: Mapping[Setting, Sequence[DaemonRun]]
) -> dict[str, Any]:
    """Everything that ``--json`` prints. ``runs``: of each setting, one for each seed."""
    rows = []
    for setting, each in runs.items():
        found = [figures(*pair) for pair in zip(each, runs[REFERENCE], strict=True)]
        middle = {name: median(one[name] for one in found) for name in found[0]}
        rows.append({**setting._asdict(), **middle, "runs": found})
    small, large = load.pools(seeds)
    free = rows[0]["output_tokens_per_s"]
    for row in rows:
        row["of_reference"] = row["output_tokens_per_s"] / free if free else 0.0
    return {
        "workload": asdict(load) | {"seeds": list(seeds), "num_pages": small},
        "daemon": daemon_facts(runs[REFERENCE][0].after),
        "pages_for_all": large,
        "failed": sum(one["failed"] for row in rows for one in row["runs"]),
        "errors": sorted(_errors(runs)),
        "rows": rows,
        "auto_to_better": auto_to_better(rows),
    }


def auto_to_better(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """For each policy: tokens/s of ``auto`` as a share of the better of the two other modes."""
    speed = {(row["policy"], row["mode"]): row["output_tokens_per_s"] for row in rows}
    found: dict[str, float] = {}
    for policy in dict.fromkeys(policy for policy, mode in speed if mode == "auto"):
        better = max(speed[policy, "swap"], speed[policy, "recompute"])
        found[policy] = speed[policy, "auto"] / better if better else 0.0
    return found


def table(result: dict[str, Any]) -> list[str]:
    """The medians as lines of text."""
    daemon, load, rows = result["daemon"], result["workload"], result["rows"]
    count, repeats = load["num_requests"], len(load["seeds"])
    forced = [row for row in rows if row["policy"] is not None]
    total = sum(row["preemptions_swap"] + row["preemptions_recompute"] for row in forced)
    same = sum(one["same_answers"] for row in forced for one in row["runs"])
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in result["auto_to_better"].items())
    return [
        f"{daemon['model']} on {daemon['device']}, {daemon['dtype']}, a pool of "
        f"{load['num_pages']} pages of {load['page_size']} tokens",
        f"{count} requests at once, every other one {LONG_TO_SHORT} times as long, on average "
        f"{load['input_len']} tokens in and {load['output_len']} out",
        f"They fill {result['pages_for_all']} pages together. Medians of {repeats} "
        f"run{'' if repeats == 1 else 's'}, times in milliseconds.",
        "",
        f"  {'policy':<10}{'mode':<10}{'tokens/s':>9}{'relative':>9}{'p99 gap':>9}{'most gap':>10}"
        f"{'swapped':>9}{'dropped':>9}{'recomputed':>12}{'copied':>10}",
        *(_row(row) for row in rows),
        "",
        f"A request was preempted {total / max(len(forced), 1) / count:.1f} times on average; "
        f"{same} of {count * repeats * len(forced)} answers are those of the large pool.",
        f"auto against the better of swap and recompute, in tokens/s: {ratios}",
        *(f"error: {error}" for error in result["errors"]),
    ]


def _errors(runs: Mapping[Setting, Sequence[DaemonRun]]) -> set[str]:
    traces = (trace for each in runs.values() for run in each for trace in run.traces)
    return {trace.error for trace in traces if trace.error is not None}


def _row(row: Mapping[str, Any]) -> str:
    policy, mode = row["policy"] or "none:", row["mode"] or "all fits"
    return (
        f"  {policy:<10}{mode:<10}{row['output_tokens_per_s']:>9.1f}{row['of_reference']:>9.0%}"
        f"{row['p99_gap_ms']:>9.1f}{row['most_gap_ms']:>10.1f}{row['preemptions_swap']:>9.0f}"
        f"{row['preemptions_recompute']:>9.0f}{row['recomputed_tokens']:>12,.0f}"
        f"{row['swapped_bytes'] / 1e6:>7,.0f} MB"
    )
