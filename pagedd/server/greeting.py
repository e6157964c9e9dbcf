"""The first frame of a connection: what the daemon is, and what it can do."""

from __future__ import annotations

from pagedd.protocol import MAX_FRAME_BYTES, VERSION, Hello, Limits
from pagedd.server.model import Model

FEATURES = (
    "generate",
    "cancel",
    "status",
    "explain",
    "reprioritize",
    "events",
    "state",
    "logprobs",
    "n",
    "cache_salt",
    "priority",
    "structured_output",
)
MAX_LOGPROBS = 20


def hello_of(model: Model | None, boot_id: str, model_name: str, max_queue: int) -> Hello:
    """Sizes are 0 until an engine is ready."""
    chat = model is not None and model.text.chat.usable
    ready = None if model is None else model.ready
    limits = Limits(
        max_frame=MAX_FRAME_BYTES,
        max_queue=max_queue,
        max_num_seqs=0 if ready is None else ready.max_num_seqs,
        max_n=0 if ready is None else ready.max_num_seqs,
        max_logprobs=MAX_LOGPROBS,
        vocab_size=0 if ready is None else ready.vocab_size,
    )
    return Hello(
        version=VERSION,
        boot_id=boot_id,
        model=model_name if ready is None else ready.model,
        max_model_len=0 if ready is None else ready.max_model_len,
        page_size=0 if ready is None else ready.page_size,
        num_pages=0 if ready is None else ready.num_pages,
        num_host_pages=0 if ready is None else ready.num_host_pages,
        limits=limits,
        features=[*FEATURES, *(["chat"] if chat else [])],
    )
