"""The metrics by name: what each is called, what it means, where its values come from.

Names, units and labels are those of vLLM where it has the same thing, so that dashboards made for
it work. What has no counterpart here and is not left out is a true 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from pagedd.server.metrics_ended import request_families
from pagedd.server.metrics_page import Now, Page
from pagedd.server.metrics_requests import RequestMeter
from pagedd.server.metrics_steps import LIMITS, StepMeter

STATES = ("loading", "ready", "stalled", "failed", "draining")


def families(
    page: Page, now: Now, requests: RequestMeter, steps: StepMeter, restarts: int
) -> Iterator[Metric]:
    """All of them."""
    yield from _scheduler(page, now, steps)
    yield from _cache(page, now)
    yield from _prefix(page, now)
    yield from _tokens(page, now)
    yield from request_families(page, requests)
    yield from _steps(page, now, steps)
    yield from _daemon(page, now, restarts)


def _scheduler(page: Page, now: Now, steps: StepMeter) -> Iterable[Metric]:
    status = now.status
    waiting = status.num_requests_waiting
    limit = "engine" if now.held else steps.limit
    return (
        page.gauge(
            "num_requests_running",
            "Requests of which a sequence is in the batch.",
            status.num_requests_running,
        ),
        page.gauge(
            "num_requests_waiting", "Requests of which no sequence is in the batch.", waiting
        ),
        page.gauges(
            "num_requests_waiting_by_reason",
            "Requests that wait for room (capacity) or for another engine (deferred).",
            ("reason",),
            {("capacity",): waiting - now.held, ("deferred",): now.held},
        ),
        page.gauges(
            "num_requests_waiting_by_limit",
            "Requests that wait, under what the first of them waits for.",
            ("limit",),
            {(each,): waiting if each == limit else 0 for each in LIMITS},
        ),
        page.gauge(
            "num_requests_swapped",
            "Sequences whose pages wait in host memory.",
            status.num_requests_swapped,
        ),
        page.gauge(
            "num_requests_preparing", "Requests whose prompt is being tokenised.", now.preparing
        ),
        page.counters(
            "num_preemptions",
            "Sequences that gave way, by how they are to come back.",
            ("mode",),
            {
                ("swap",): status.preemptions.swap,
                ("recompute",): status.preemptions.recompute,
            },
        ),
    )


def _cache(page: Page, now: Now) -> Iterable[Metric]:
    status, ready = now.status, now.ready
    pages, host = status.pages, status.host_pages
    usage = "Share of the device's pages that requests hold, 0 to 1."
    facts = {
        "block_size": str(status.page_size),
        "num_gpu_blocks": str(pages.total),
        "num_cpu_blocks": str(host.total),
        "page_bytes": str(0 if ready is None else ready.page_bytes),
        "max_model_len": str(status.max_model_len),
        "max_num_seqs": str(0 if ready is None else ready.max_num_seqs),
    }
    return (
        page.gauge("kv_cache_usage_perc", usage, status.gpu_cache_usage),
        page.gauge("gpu_cache_usage_perc", usage, status.gpu_cache_usage),
        page.gauge(
            "cpu_cache_usage_perc",
            "Share of the host pages that are in use, 0 to 1.",
            status.host_cache_usage,
        ),
        page.gauges(
            "pages",
            "Pages of the KV cache on the device; shared: held by several sequences.",
            ("state",),
            {
                ("free",): pages.free,
                ("cached",): pages.cached,
                ("owned",): pages.owned,
                ("shared",): pages.shared,
            },
        ),
        page.gauges(
            "host_pages",
            "Pages of the swap space in host memory.",
            ("state",),
            {("free",): host.free, ("swapped",): host.swapped, ("cached",): host.cached},
        ),
        page.gauge(
            "unused_slots", "Token slots in held pages that hold no token.", status.unused_slots
        ),
        page.info("cache_config_info", "Sizes of the cache; the value is 1.", facts),
        page.counter(
            "swapped_bytes",
            "Copied between the device and host memory, out and in.",
            status.swapped_bytes,
        ),
        page.counter(
            "spilled_pages",
            "Cached pages that were kept in host memory when they were evicted.",
            status.spilled_pages,
        ),
    )


def _prefix(page: Page, now: Now) -> Iterable[Metric]:
    prefix = now.status.prefix
    return (
        page.counter(
            "prefix_cache_queries",
            "Prompt tokens that the prefix cache was asked for.",
            prefix.queries,
        ),
        page.counter("prefix_cache_hits", "Prompt tokens that the prefix cache had.", prefix.hits),
        page.counter(
            "external_prefix_cache_queries", "There is no cache outside of this daemon.", 0
        ),
        page.counter("external_prefix_cache_hits", "There is no cache outside of this daemon.", 0),
        page.counter("mm_cache_queries", "No input but text is taken.", 0),
        page.counter("mm_cache_hits", "No input but text is taken.", 0),
    )


def _tokens(page: Page, now: Now) -> Iterable[Metric]:
    status = now.status
    prompt, hits = status.tokens.prompt, status.prefix.hits
    return (
        page.counter("prompt_tokens", "Tokens of the prompts that were begun.", prompt),
        page.counters(
            "prompt_tokens_by_source",
            "Tokens of the prompts, by where their KV came from.",
            ("source",),
            {
                ("local_compute",): prompt - hits,
                ("local_cache_hit",): hits,
                ("external_kv_transfer",): 0,
            },
        ),
        page.counter("prompt_tokens_cached", "Tokens of the prompts that were cached.", hits),
        page.counters(
            "prompt_tokens_cached_by_source",
            "Cached prompt tokens, by where they were.",
            ("source",),
            {
                ("device",): hits - status.host_hits,
                ("host",): status.host_hits,
                ("disk",): 0,
            },
        ),
        page.counter("generation_tokens", "Tokens that were drawn.", status.tokens.generated),
        page.counter(
            "recomputed_tokens",
            "Tokens that were computed again after a preemption.",
            status.recomputed_tokens,
        ),
    )


def _steps(page: Page, now: Now, steps: StepMeter) -> Iterable[Metric]:
    return (
        page.counter("steps", "Steps of the engine.", now.status.num_steps),
        page.histogram("iteration_tokens_total", "Tokens that a step computed.", steps.computed),
        page.histograms(
            "step_seconds",
            "Time of a step's parts, in seconds.",
            ("phase",),
            {(phase,): each for phase, each in steps.phases.items()},
        ),
    )


def _daemon(page: Page, now: Now, restarts: int) -> Iterable[Metric]:
    status, ready = now.status, now.ready
    state = status.state
    facts = {
        "version": status.version,
        "device": status.device,
        "dtype": status.dtype,
        "boot_id": status.boot_id,
    }
    asleep = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
    return (
        page.gauges(
            "engine_state",
            "1 for the state that the daemon is in.",
            ("state",),
            {(each,): int(each == state) for each in STATES},
        ),
        page.gauges(
            "engine_sleep_state",
            "An engine here never sleeps.",
            ("sleep_state",),
            {(each,): value if ready is not None else 0 for each, value in asleep.items()},
        ),
        page.counter("engine_restarts", "Engines that took another's place.", restarts),
        page.gauges(
            "connections",
            "Open connections.",
            ("kind",),
            {(kind,): count for kind, count in now.connections.items()},
        ),
        page.info("build_info", "What runs here; the value is 1.", facts),
    )
