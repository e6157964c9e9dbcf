"""The metrics of requests: how they ended, their sizes and their times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from pagedd.server.metrics_histogram import Histogram
from pagedd.server.metrics_page import Page
from pagedd.server.metrics_requests import RequestMeter

Row = tuple[str, str, Histogram]  # name, help, values


def request_families(page: Page, meter: RequestMeter) -> Iterator[Metric]:
    """All of them."""
    yield from _ends(page, meter)
    for row in (*_sizes(meter), *_waits(meter), *_times(meter)):
        yield page.histogram(*row)


def _ends(page: Page, meter: RequestMeter) -> Iterable[Metric]:
    return (
        page.counters(
            "request_success",
            "Requests that ended: stop, length, abort (cancelled, or its client left), error.",
            ("finished_reason",),
            {(reason,): count for reason, count in meter.ended.items()},
        ),
        page.counters(
            "request_failures",
            "Requests that ended with an error, by its code.",
            ("code",),
            {(code,): count for code, count in meter.failures.items()},
        ),
        page.counters(
            "admission_rejections",
            "Requests that were refused because the queue was full.",
            ("reason",),
            {("max_queue",): meter.queue_full},
        ),
    )


def _sizes(meter: RequestMeter) -> Iterable[Row]:
    yield "request_prompt_tokens", "Prompt tokens of a request.", meter.prompt_tokens
    yield (
        "request_prefill_kv_computed_tokens",
        "Prompt tokens of a request, less the cached.",
        meter.computed_prompt_tokens,
    )
    yield (
        "request_generation_tokens",
        "Tokens that a request got, of all its choices.",
        meter.generated_tokens,
    )
    yield (
        "request_max_num_generation_tokens",
        "Tokens of a request's longest choice.",
        meter.longest_choice,
    )
    yield "request_params_n", "Choices that a request asked for.", meter.asked_choices
    yield (
        "request_params_max_tokens",
        "Tokens that a request allowed for a choice.",
        meter.asked_tokens,
    )
    yield (
        "request_num_preemptions",
        "How often sequences of a request gave way.",
        meter.preemptions,
    )


def _waits(meter: RequestMeter) -> Iterable[Row]:
    """What a client sees."""
    gap = "Time between two tokens of a choice, in seconds."
    yield (
        "time_to_first_token_seconds",
        "Time from a request's arrival to its first token, in seconds.",
        meter.first_token,
    )
    yield "inter_token_latency_seconds", gap, meter.gaps
    yield "time_per_output_token_seconds", gap, meter.gaps
    yield (
        "request_time_per_output_token_seconds",
        "Mean time between the tokens of a request, in seconds.",
        meter.per_token,
    )
    yield (
        "e2e_request_latency_seconds",
        "Time from a request's arrival to its end, in seconds.",
        meter.whole,
    )


def _times(meter: RequestMeter) -> Iterable[Row]:
    """What the engine did meanwhile."""
    yield (
        "request_queue_time_seconds",
        "Time that a request waited to be begun, in seconds.",
        meter.queued,
    )
    yield (
        "request_inference_time_seconds",
        "Time that a request was in the batch, in seconds.",
        meter.inference,
    )
    yield (
        "request_prefill_time_seconds",
        "Time that a request's prompt took, in seconds.",
        meter.prefill,
    )
    yield (
        "request_decode_time_seconds",
        "Time that a request's tokens took, in seconds.",
        meter.decode,
    )
    yield (
        "request_preempted_time_seconds",
        "Time that a request waited after it had given way, in seconds.",
        meter.preempted,
    )
