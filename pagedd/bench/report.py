"""From traces to numbers, and from numbers to a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pagedd.bench.drive import DaemonRun, Run
from pagedd.bench.load import Item, Workload, load_id
from pagedd.protocol import Status

PERCENTILES = (50, 90, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at ``percent`` of the sorted ``values``, linearly between neighbours."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and percentiles in milliseconds of ``values`` in seconds; None of nothing."""
    if not values:
        return None
    found = {"mean": 1000 * sum(values) / len(values)}
    return found | {f"p{p}": 1000 * percentile(values, p) for p in PERCENTILES}


def daemon_facts(status: Status) -> dict[str, str]:
    """What was measured, for every result."""
    return {
        "version": status.version,
        "model": status.model,
        "device": status.device,
        "dtype": status.dtype,
    }


def same_answers(one: Run, other: Run) -> int:
    """How many requests got the same tokens in both runs, to the end."""
    answers = [
        {trace.index: trace.answer for trace in run.traces if trace.ended is not None}
        for run in (one, other)
    ]
    return sum(1 for index, answer in answers[0].items() if answers[1].get(index) == answer)


def output_speed(run: Run) -> float:
    """Tokens per second of the requests that ended well."""
    seconds = max(run.ended - run.began, 1e-9)
    return sum(trace.tokens for trace in run.traces if trace.ended is not None) / seconds


def summarise(run: Run, items: Sequence[Item], load: Workload) -> dict[str, Any]:
    """What is known of every run, whatever answered.

    ``unlike_asked`` counts the answers of another length than was asked for; ``untold`` the tokens
    of which the server told no more than their number, so that they are in no time between tokens.
    ``client_cpu``: what sending and reading took of one core.
    """
    whole = [trace for trace in run.traces if trace.ended is not None]
    seconds = max(run.ended - run.began, 1e-9)
    output = sum(trace.tokens for trace in whole)
    first = [t.first - t.sent for t in whole if t.first is not None]
    gaps = [gap for trace in whole for gap in trace.gaps]
    return {
        "workload": asdict(load),
        "load_id": load_id(items),
        "completed": len(whole),
        "failed": len(run.traces) - len(whole),
        "errors": sorted({trace.error for trace in run.traces if trace.error is not None}),
        "unlike_asked": sum(trace.tokens != trace.asked for trace in whole),
        "seconds": seconds,
        "input_tokens": run.input_tokens,
        "cached_tokens": run.cached_tokens,
        "output_tokens": output,
        "untold_tokens": sum(max(trace.tokens - trace.seen, 0) for trace in whole),
        "output_tokens_per_s": output_speed(run),
        "requests_per_s": len(whole) / seconds,
        "ttft_ms": spread(first),
        "inter_token_ms": spread(gaps),
        "end_to_end_ms": spread([t.ended - t.sent for t in whole if t.ended is not None]),
        "client_cpu": run.client_s / seconds,
    }


def summarise_daemon(run: DaemonRun, items: Sequence[Item], load: Workload) -> dict[str, Any]:
    """The same of a daemon, with what its statuses tell."""
    use = [(s.pages.owned + s.pages.shared) / s.pages.total for s in run.statuses if s.pages.total]
    before, after = run.before, run.after
    return summarise(run, items, load) | {
        "daemon": daemon_facts(after)
        | {"page_size": after.page_size, "num_pages": after.pages.total},
        "kv_use": {"mean": sum(use) / len(use), "peak": max(use)} if use else None,
        "preemptions": (after.preemptions.swap + after.preemptions.recompute)
        - (before.preemptions.swap + before.preemptions.recompute),
        "recomputed_tokens": after.recomputed_tokens - before.recomputed_tokens,
        "step_ms": run.statuses[-1].step_ms if run.statuses else {},
    }


def table(result: dict[str, Any]) -> list[str]:
    """The numbers as lines of text, for a terminal or a file."""
    lines = [
        subject(result),
        f"{result['completed']} requests in {result['seconds']:.2f} s"
        + (f", {result['failed']} failed" if result["failed"] else "")
        + f" (load {result['load_id']})",
        "",
        f"  output          {result['output_tokens_per_s']:10.1f} tokens/s"
        f"   ({result['output_tokens']} tokens)",
        f"  input           {result['input_tokens']:10d} tokens"
        f"     ({result['cached_tokens']} from the prefix cache)",
        f"  requests        {result['requests_per_s']:10.2f} /s",
    ]
    if result.get("kv_use") is not None:
        use = result["kv_use"]
        lines.append(f"  KV pages in use {use['peak']:10.1%} at most (mean {use['mean']:.1%})")
    if "preemptions" in result:
        lines.append(f"  preemptions     {result['preemptions']:10d}")
    lines.append(f"  load generator  {result['client_cpu']:10.1%} of a core")
    lines += [
        "",
        f"  {'milliseconds':<20}{'mean':>10}" + "".join(f"{f'p{p}':>10}" for p in PERCENTILES),
    ]
    for name, key in (
        ("time to first token", "ttft_ms"),
        ("between tokens", "inter_token_ms"),
        ("end to end", "end_to_end_ms"),
    ):
        if result[key] is not None:
            row = "".join(f"{value:10.1f}" for value in result[key].values())
            lines.append(f"  {name:<20}{row}")
    return lines + [f"  {line}" for line in remarks(result)] + peer_lines(result)


def subject(result: dict[str, Any]) -> str:
    """What was measured, in a line."""
    if "server" in result:
        server = result["server"]
        owner = f" ({server['owner']})" if server["owner"] else ""
        return f"{server['model'] or 'a model'} at {server['url']}{owner}"
    daemon = result["daemon"]
    return (
        f"{daemon['model']} on {daemon['device']}, {daemon['dtype']}, "
        f"{daemon['num_pages']} pages of {daemon['page_size']} tokens"
    )


def remarks(result: dict[str, Any]) -> list[str]:
    """What a reader must know of the numbers: errors, and whether everything was as asked."""
    lines = [f"error: {error}" for error in result["errors"]]
    if result["unlike_asked"]:
        lines.append(
            f"{result['unlike_asked']} of {result['completed']} answers had another length than "
            "was asked for"
        )
    if result["untold_tokens"]:
        lines.append(
            f"{result['untold_tokens']} tokens came together with others: the time between tokens "
            "is that between pieces of text"
        )
    return lines


def peer_lines(result: dict[str, Any]) -> list[str]:
    """The other side, when there was one."""
    peer = result.get("peer")
    if peer is None:
        return []
    return [
        "",
        f"against transformers {peer['version']}: the same requests, {peer['conditions']}",
        f"  output          {peer['output_tokens_per_s']:10.1f} tokens/s"
        f"   ({peer['output_tokens']} tokens in {peer['seconds']:.2f} s)",
        f"  pagedd is {result['ratio']:.2f} times as fast",
    ]
