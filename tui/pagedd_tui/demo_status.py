"""What a daemon would say of itself, if it ran the simulated engine."""

from __future__ import annotations

import os

from pagedd.core.events import Explained
from pagedd.protocol import (
    VERSION,
    Hello,
    HostPageCounts,
    Limits,
    PageCounts,
    PageTable,
    PreemptionCounts,
    PrefixCounts,
    RequestCounts,
    Status,
    TokenCounts,
)
from pagedd_tui.demo_engine import CONFIG, Simulation

MODEL = "simulated-demo"
HELLO = Hello(
    version=VERSION,
    boot_id="demo",
    model=MODEL,
    max_model_len=CONFIG.max_model_len,
    page_size=CONFIG.page_size,
    num_pages=CONFIG.num_pages,
    num_host_pages=CONFIG.num_host_pages,
    limits=Limits(
        max_frame=16 * 1024 * 1024,
        max_queue=CONFIG.max_queue,
        max_num_seqs=CONFIG.max_num_seqs,
        max_n=CONFIG.max_num_seqs,
        max_logprobs=0,
        vocab_size=4096,
    ),
    features=["state", "events"],
)


def status_of(simulation: Simulation) -> Status:
    """The status of this moment."""
    stats, counters = simulation.scheduler.stats(), simulation.counters()
    return Status(
        version="demo",
        boot_id=HELLO.boot_id,
        state="ready",
        pid=os.getpid(),
        engine_pid=os.getpid(),
        uptime_s=round(simulation.now, 3),
        model=MODEL,
        device="simulated",
        dtype="none",
        page_size=CONFIG.page_size,
        max_model_len=CONFIG.max_model_len,
        requests=RequestCounts(
            running=stats.running,
            waiting=stats.waiting,
            swapped=stats.swapped,
            finished_total=stats.finished_total,
            cancelled_total=stats.cancelled_total,
            failed_total=stats.failed_total,
        ),
        pages=PageCounts(*stats.pages),
        host_pages=HostPageCounts(*stats.host_pages),
        preemptions=PreemptionCounts(stats.preemptions_swap, stats.preemptions_recompute),
        recomputed_tokens=stats.recomputed_tokens,
        swapped_bytes=stats.swapped_bytes,
        prefix=PrefixCounts(stats.prefix_queries, stats.prefix_hits),
        tokens=TokenCounts(stats.prompt_tokens, stats.generated_tokens, counters.tokens_per_second),
        step_ms=counters.step_ms,
        connections=0,
        endpoints=[],
        num_requests_running=stats.running,
        num_requests_waiting=stats.waiting,
        num_requests_swapped=stats.swapped,
        gpu_cache_usage=counters.gpu_cache_usage,
        host_cache_usage=counters.host_cache_usage,
        num_preemptions=counters.preemptions_total,
        num_steps=stats.steps,
        unused_slots=stats.unused_slots,
        spilled_pages=stats.spilled_pages,
        host_hits=stats.host_hits,
    )


def tables_of(explained: Explained) -> list[PageTable]:
    """The page tables of an explanation."""
    return [
        PageTable(
            index=table.choice,
            pages=list(table.pages),
            refs=list(table.refs),
            host=list(table.host),
            host_start=table.host_start,
        )
        for table in explained.tables
    ]
