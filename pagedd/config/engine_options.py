"""What the engine takes: the model, its memory, and who runs when."""

from __future__ import annotations

from pagedd.config.kinds import choice, number, size, switch, text, whole
from pagedd.config.option import Option, group_of
from pagedd.models.catalog import DEFAULT_MODEL

MODEL: tuple[Option, ...] = group_of(
    "model",
    (
        "model",
        text("MODEL"),
        DEFAULT_MODEL,
        "a folder with safetensors, a .gguf file, a hub id or a short name",
        "engine",
    ),
    (
        "load-format",
        choice("auto", "dummy"),
        "auto",
        "dummy fills random weights, to measure a model's shape",
        "engine",
    ),
    (
        "dtype",
        choice("auto", "float32", "bfloat16", "float16"),
        "auto",
        "type computed with, of the cache and of dense weights",
        "engine",
    ),
    (
        "weights",
        choice("auto", "dense", "bf16", "int8", "int4"),
        "auto",
        "auto: as narrow as the file has them; dense: in --dtype; bf16: dense in bfloat16; "
        "int8, int4: at most so many bits",
        "engine",
    ),
    ("device", choice("auto", "cpu", "cuda"), "auto", "where the model runs", "engine"),
    (
        "threads",
        whole(1, 4096, auto=True),
        None,
        "CPU threads; auto: at most one for each core that this process may use, "
        "fewer while other programs are busy and that is faster",
        "engine",
    ),
    (
        "seed",
        whole(-(2**63), 2**63 - 1, auto=True),
        None,
        "seed of requests that bring none; auto: a new one at each start",
        "engine",
    ),
)

MEMORY: tuple[Option, ...] = group_of(
    "memory",
    (
        "page-size",
        whole(1, 64, auto=True, metavar="TOKENS"),
        None,
        "tokens in a page of the KV cache; auto: by device",
        "engine",
    ),
    (
        "num-pages",
        whole(1, 2**31 - 1, auto=True),
        None,
        "pages in the KV cache; auto: what the memory allows",
        "engine",
    ),
    (
        "kv-cache-memory",
        size(4096, auto=True),
        None,
        "memory for the KV cache; auto: a share of what is free",
        "engine",
    ),
    (
        "kv-cache-dtype",
        choice("auto", "fp8_e4m3", "fp8_e5m2"),
        "auto",
        "type of the KV cache; auto: that computed with; fp8: half of 16 bits, on a GPU only",
        "engine",
    ),
    (
        "gpu-memory-utilization",
        number(0, 1, above=True),
        0.9,
        "share of the GPU's memory that pagedd may fill",
        "engine",
    ),
    (
        "enforce-eager",
        switch(),
        False,
        "launch every kernel of every step instead of replaying recorded steps",
        "engine",
    ),
    (
        "swap-space",
        size(0, auto=True, bare="gib"),
        None,
        "host memory for preempted sequences, a bare number in GiB; 0: none; auto: a quarter "
        "of what is free, at most 1GiB",
        "engine",
    ),
    (
        "num-host-pages",
        whole(0, 2**31 - 1, auto=True),
        None,
        "pages of the swap space, whatever --swap-space says; auto: what that holds",
        "engine",
    ),
    (
        "prefix-cache",
        switch(),
        True,
        "keep and share the pages of equal prompt beginnings",
        "engine",
    ),
)

SCHEDULING: tuple[Option, ...] = group_of(
    "scheduling",
    ("max-num-seqs", whole(1, 65536), 64, "sequences in one step", "engine"),
    (
        "max-num-batched-tokens",
        whole(1, 2**24, auto=True),
        None,
        "tokens in one step; long prompts go in chunks of at most this; auto: by device",
        "engine",
    ),
    (
        "max-model-len",
        whole(2, 2**31 - 1, auto=True),
        None,
        "longest prompt and answer together; auto: the model's limit",
        "engine",
    ),
    ("max-queue", whole(1, 2**20), 1024, "requests that may wait; more are refused", "engine"),
    (
        "preemption-policy",
        choice("length", "arrival", "cost"),
        "length",
        "who gives way first when pages run out: least generated, latest, cheapest to restore",
        "engine",
    ),
    (
        "preemption-mode",
        choice("auto", "swap", "recompute"),
        "auto",
        "copy what gives way to host memory, or compute it again; auto: what is quicker",
        "engine",
    ),
    (
        "priority-aging",
        number(0, 86400, above=True, off=True, metavar="SECONDS"),
        None,
        "waiting this long makes a request one level more urgent (default: off)",
        "engine",
    ),
    (
        "fair-share",
        switch(),
        False,
        "within a priority, clients take turns by the tokens they have used",
        "engine",
    ),
)
