"""The other side of ``pagedd bench --against hf``: transformers in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from pagedd.bench.load import Item
from pagedd.errors import PageddError

CHILD = "pagedd.runtime.bench_hf"


def measure_hf(
    job: dict[str, Any], items: Sequence[Item], progress: Callable[[float, str], None]
) -> dict[str, Any]:
    """Run the items in static batches; returns the child's result.

    ``job`` holds model, load_format, dtype, device, batch and threads (None: torch's default).
    Errors: ``PageddError`` with the last line of what the child said.
    """
    whole = {**job, "items": [(item.prompt, item.output_len) for item in items]}
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(whole))
            child.stdin.close()
            result: dict[str, Any] | None = None
            for line in child.stdout:
                said = json.loads(line)
                if "result" in said:
                    result = said["result"]
                else:
                    progress(said["fraction"], said["what"])
            code = child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
        if result is None or code != 0:
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:] or [f"exit code {code}"]
            raise PageddError(f"transformers could not be measured: {last[0]}")
    return result
