"""What the HTTP edge takes."""

from __future__ import annotations

from pagedd.config.kinds import Address, address, choice, hosts, size, whole
from pagedd.config.option import Option, group_of

MIB = 1 << 20

HTTP: tuple[Option, ...] = group_of(
    "http",
    (
        "http",
        address(),
        Address("127.0.0.1", 8411),
        "the address of the OpenAI-compatible endpoints; port 0 takes a free one",
        "daemon",
    ),
    (
        "allow-host",
        hosts(),
        (),
        "name under which HTTP may be asked, besides addresses and localhost; repeatable",
        "daemon",
    ),
    ("max-connections", whole(1, 65536), 2048, "HTTP connections that may be open", "daemon"),
    ("http-body-limit", size(1024), 16 * MIB, "longest body of an HTTP request", "daemon"),
    (
        "metrics-namespace",
        choice("pagedd", "vllm", "pagedd_"),
        "pagedd",
        "names of the metrics: pagedd:NAME; vllm:NAME for dashboards made for vLLM; or pagedd_NAME",
        "daemon",
    ),
)
