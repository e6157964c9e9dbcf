"""Small parts that the tests of the engine share."""

from __future__ import annotations

from pagedd.core.events import HostPageCounts, PageCounts, Stats
from pagedd.engine.messages import Ready

NO_HOST_PAGES = HostPageCounts(0, 0, 0, 0)
NO_STATS = Stats(0, 0, 0, PageCounts(4, 4, 0, 0, 0), NO_HOST_PAGES, *[0] * 18)
READY = Ready(
    model="m",
    text_dir="",
    device="cpu",
    dtype="float32",
    vocab_size=8,
    max_model_len=64,
    page_size=4,
    num_pages=100,
    num_host_pages=6,
    max_num_seqs=8,
    max_num_batched_tokens=8,
    eos_ids=(0,),
    notes=(),
)
