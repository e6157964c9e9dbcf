"""The forms of a model's weights beside each other: what ``pagedd bench perplexity`` runs.

Run as a child process: a job as JSON on standard input, lines of JSON on standard output
(``{"fraction", "what"}`` while it goes on, ``{"result"}`` at the end).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from pagedd.engine.messages import EngineConfig
from pagedd.errors import PageddError, UsageError
from pagedd.models.load import LoadedModel, load_model
from pagedd.models.reader import WeightForm
from pagedd.models.resolve import resolve
from pagedd.runtime.perplexity import STRIDE, WINDOW, compare, token_losses
from pagedd.runtime.threads import share_cores
from pagedd.text.prepare import prepare
from pagedd.text.tokenizer import TextModel

Progress = Callable[[float, str], None]
Form = tuple[str, WeightForm]  # dtype, weights
# The first is what the others are compared with.
FORMS: tuple[Form, ...] = (
    ("float32", "dense"),
    ("bfloat16", "dense"),
    ("bfloat16", "auto"),
    ("bfloat16", "int8"),
    ("bfloat16", "int4"),
)
LEAST_TOKENS = 3  # two losses: a single one has no standard error


def measure(job: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """``job``: model, device, threads and the file ``text``. Errors: ``PageddError``."""
    files = resolve(job["model"])
    ids, front = tokens_of(TextModel.load(prepare(files)), Path(job["text"]))

    def load(dtype: str, weights: WeightForm) -> LoadedModel:
        config = EngineConfig(
            model=job["model"], device=job["device"], dtype=dtype, weights=weights
        )
        loaded = load_model(config, lambda phase, fraction: None)
        share_cores(loaded.backend, job["threads"])
        return loaded

    return {
        "model": files.name,
        "tokens": len(ids),
        "window": WINDOW,
        "stride": STRIDE,
        "rows": measure_forms(load, FORMS, ids, front, progress),
    }


def measure_forms(
    load: Callable[[str, WeightForm], LoadedModel],
    forms: Sequence[Form],
    ids: Sequence[int],
    front: Sequence[int],
    progress: Progress,
) -> list[dict[str, Any]]:
    """A row for each of ``forms``, compared with the first. ``load``: the model in a form."""
    rows = []
    reference: Tensor | None = None
    for number, (dtype, weights) in enumerate(forms):

        def show(fraction: float, done: int = number, what: str = f"{dtype}, {weights}") -> None:
            progress((done + fraction) / len(forms), what)

        show(0.0)
        loaded = load(dtype, weights)
        losses = token_losses(loaded, ids, front, progress=show)
        reference = losses if reference is None else reference
        row = {"dtype": dtype, "weights": weights, "bytes": loaded.model.weight_bytes}
        rows.append(row | compare(losses, reference)._asdict())
    return rows


def tokens_of(text: TextModel, path: Path) -> tuple[list[int], list[int]]:
    """Ids of the file's text, and those that each window begins with. Errors: ``UsageError``."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--text {path}: cannot be read: {reason}") from error
    ids = text.encode(content, add_bos=False, field="--text")
    if len(ids) < LEAST_TOKENS:
        raise UsageError(f"--text {path}: has fewer than {LEAST_TOKENS} tokens")
    return ids, text.encode("", add_bos=text.add_bos)


def main() -> int:
    """One job. A message of ours is one line on standard error."""

    def show(fraction: float, what: str) -> None:
        print(json.dumps({"fraction": fraction, "what": what}), flush=True)

    try:
        print(json.dumps({"result": measure(json.load(sys.stdin), show)}), flush=True)
    except PageddError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
