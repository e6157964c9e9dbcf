"""The case that paging is for: many requests at once in a small cache, and what each way holds.

*Static reservation* sets a whole sequence's longest length aside for each request that runs; so
few run at a time, and most of what they hold never sees a token. *Paging* gives a page when a
token needs it. Both run here as the same daemon with the same pool: the one may run as many
requests at a time as reservations fit, the other as many as pages allow.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from pagedd.bench.drive import DaemonRun
from pagedd.bench.load import Item, around, random_tokens
from pagedd.bench.report import daemon_facts, same_answers
from pagedd.protocol import Status


@dataclass(frozen=True, slots=True)
class Case:
    """Lengths in tokens; those of prompt and answer are means."""

    num_pages: int = 100
    page_size: int = 32
    num_requests: int = 20
    input_len: int = 16
    output_len: int = 200
    reserved: int = 2048  # what static reservation sets aside for a request

    @property
    def slots(self) -> int:
        """Tokens that the pool holds."""
        return self.num_pages * self.page_size

    @property
    def reservations(self) -> int:
        """Requests that static reservation can run at a time."""
        return self.slots // self.reserved

    def items(self, vocab_size: int, seed: int) -> list[Item]:
        """The requests: the same ones for the same arguments."""
        draw = random.Random(seed)
        prompts = around(draw, self.input_len, self.num_requests)
        answers = around(draw, self.output_len, self.num_requests)
        pairs = zip(prompts, answers, strict=True)
        return [Item(random_tokens(draw, prompt, vocab_size), out, 0.0) for prompt, out in pairs]


class Look(NamedTuple):
    """One status: how many ran, the token slots that they held, and those without a token."""

    running: int
    held: int
    unused: int


def look(status: Status, reserved: int | None) -> Look:
    """``reserved``: tokens set aside for each running request; None: it holds its pages."""
    running = status.requests.running
    in_pages = (status.pages.owned + status.pages.shared) * status.page_size
    if reserved is None:
        return Look(running, in_pages, status.unused_slots)
    held = running * reserved
    return Look(running, held, held - (in_pages - status.unused_slots))


def side(run: DaemonRun, reserved: int | None) -> dict[str, Any]:
    """What one of the two ways held, wasted and did; ``reserved`` as for :func:`look`.

    The means of what ran and what was held are exact, from the ledgers. What of it held no token
    is from the statuses that were taken while something ran.
    """
    whole = [trace for trace in run.traces if trace.ended is not None]
    ledgers = [trace.ledger for trace in whole if trace.ledger is not None]
    seconds = max(run.ended - run.began, 1e-9)
    running = sum(each.prefill_ms + each.decode_ms for each in ledgers) / 1000 / seconds
    pages = sum(each.page_seconds for each in ledgers) / seconds
    looks = [each for each in (look(s, reserved) for s in run.statuses) if each.running]
    held = sum(each.held for each in looks)
    each_unused = [each.unused / each.running for each in looks]
    output = sum(trace.tokens for trace in whole)
    before, after = run.before, run.after
    return {
        "completed": len(whole),
        "failed": len(run.traces) - len(whole),
        "errors": sorted({trace.error for trace in run.traces if trace.error is not None}),
        "seconds": seconds,
        "steps": after.num_steps - before.num_steps,
        "output_tokens": output,
        "output_tokens_per_s": output / seconds,
        "running": {"mean": running, "most": max((each.running for each in looks), default=0)},
        "held_slots": pages * after.page_size if reserved is None else running * reserved,
        "unused_share": sum(each.unused for each in looks) / held if held else 0.0,
        "unused_slots_per_sequence": {
            "mean": sum(each_unused) / max(len(each_unused), 1),
            "most": max(each_unused, default=0.0),
        },
        "samples": len(looks),
        "preemptions": {
            "swap": after.preemptions.swap - before.preemptions.swap,
            "recompute": after.preemptions.recompute - before.preemptions.recompute,
        },
        "recomputed_tokens": after.recomputed_tokens - before.recomputed_tokens,
        "swapped_bytes": after.swapped_bytes - before.swapped_bytes,
    }


def compare(case: Case, static: DaemonRun, paged: DaemonRun) -> dict[str, Any]:
    """Everything that ``--json`` prints: the case, both sides, and paging as a multiple."""
    sides = {"static": side(static, case.reserved), "paged": side(paged, None)}
    one, other = sides["static"], sides["paged"]
    return {
        "case": asdict(case),
        "daemon": daemon_facts(paged.after),
        **sides,
        "failed": one["failed"] + other["failed"],
        "same_answers": same_answers(static, paged),
        "ratios": {
            "running": _ratio(other["running"]["mean"], one["running"]["mean"]),
            "output_tokens_per_s": _ratio(other["output_tokens_per_s"], one["output_tokens_per_s"]),
            "steps": _ratio(one["steps"], other["steps"]),
            "seconds": _ratio(one["seconds"], other["seconds"]),
        },
    }


def table(result: dict[str, Any]) -> list[str]:
    """Both sides as lines of text."""
    case, daemon = Case(**result["case"]), result["daemon"]
    sides, ratios = (result["static"], result["paged"]), result["ratios"]

    def row(name: str, show: Callable[[dict[str, Any]], str], ratio: str = "") -> str:
        cells = "".join(f"{show(each):>20}" for each in sides)
        return f"  {name:<34}{cells}   {ratio}".rstrip()

    def most(value: dict[str, float]) -> str:
        return f"{value['mean']:.1f} (most {value['most']:.0f})"

    lines = [
        f"{daemon['model']} on {daemon['device']}, {daemon['dtype']}, "
        f"a pool of {case.num_pages} pages of {case.page_size} tokens",
        f"{case.num_requests} requests at once, each of about {case.input_len} tokens in and "
        f"{case.output_len} out",
        "",
        f"  {'':<34}{'static reservation':>20}{'paging':>20}",
        row("finished", lambda s: f"{s['completed']} of {case.num_requests}"),
        row("run at a time", lambda s: most(s["running"]), _times(ratios["running"])),
        row(
            f"memory held, of {case.slots:,} tokens",
            lambda s: f"{s['held_slots']:,.0f} ({s['held_slots'] / case.slots:.0%})",
        ),
        row("  of it without a token, share", lambda s: f"{s['unused_share']:.1%}"),
        row("  of it without a token, a request", lambda s: most(s["unused_slots_per_sequence"])),
        row("steps", lambda s: f"{s['steps']:,}", _times(ratios["steps"], "fewer")),
        row(
            "output tokens/s",
            lambda s: f"{s['output_tokens_per_s']:.1f}",
            _times(ratios["output_tokens_per_s"]),
        ),
        row("preempted: swapped, recomputed", lambda s: _preemptions(s["preemptions"])),
        row("time", lambda s: f"{s['seconds']:.2f} s", _times(ratios["seconds"], "less")),
        "",
        f"Static reservation sets {case.reserved:,} tokens aside for each request, so "
        f"{case.reservations} at a time fits.",
        f"{result['same_answers']} of {case.num_requests} answers are the same both ways.",
    ]
    errors = {error for each in sides for error in each["errors"]}
    return lines + [f"error: {error}" for error in sorted(errors)]


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None


def _times(ratio: float | None, what: str = "") -> str:
    return "" if ratio is None else f"{ratio:.1f} times {what}"


def _preemptions(count: dict[str, int]) -> str:
    return f"{count['swap']}, {count['recompute']}"
