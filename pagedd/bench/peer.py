"""The other side of ``pagedd bench --against hf``: transformers in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pagedd.bench.child import run_child
from pagedd.bench.load import Item

CHILD = "pagedd.runtime.bench_hf"


def measure_hf(
    job: dict[str, Any], items: Sequence[Item], progress: Callable[[float, str], None]
) -> dict[str, Any]:
    """Run the items in static batches; returns the child's result.

    ``job`` holds model, load_format, dtype, device, batch and threads (None: torch's default).
    Errors: ``PageddError`` with the last line of what the child said.
    """
    whole = {**job, "items": [(item.prompt, item.output_len) for item in items]}
    return run_child(CHILD, whole, progress, "transformers could not be measured")
