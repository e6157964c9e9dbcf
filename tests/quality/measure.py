"""What each form of the weights costs, on the text in this folder.

``python -m tests.quality.measure`` prints the table that the manual quotes. Dense weights and
``auto`` are those of the embedded model's file, int8 and int4 are made from floats that compute the
same (see :mod:`.shuffled`). ``--tokens N`` takes the first N tokens only.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pagedd.bench.perplexity import rows_table
from pagedd.cli.progress import Progress, shown_progress
from pagedd.engine.messages import EngineConfig
from pagedd.models.catalog import DEFAULT_MODEL
from pagedd.models.decoder import Decoder
from pagedd.models.gguf import GgufWeights
from pagedd.models.load import LoadedModel, load_model
from pagedd.models.reader import WeightForm
from pagedd.models.resolve import resolve
from pagedd.runtime.bench_perplexity import FORMS, measure_forms, tokens_of
from pagedd.text.prepare import prepare
from pagedd.text.tokenizer import TextModel
from tests.quality.shuffled import Shuffled

TEXT = Path(__file__).parent / "northanger-abbey.txt"
# At most so much more perplexity than with dense weights in float32, as a share of it.
BOUNDS = {"dense": 0.005, "auto": 0.005, "int8": 0.005, "int4": 0.15}


def load(dtype: str, weights: WeightForm) -> LoadedModel:
    """The embedded model in one form."""
    return load_floats(dtype, weights) if weights in ("int8", "int4") else _load(dtype, weights)


def load_floats(dtype: str, weights: WeightForm) -> LoadedModel:
    """The same function as the file's, from floats that lie on no grid."""
    loaded = _load(dtype, "auto")
    path = resolve(DEFAULT_MODEL).path
    shuffled = Shuffled(loaded.spec, GgufWeights(path, torch.float32))
    model = Decoder(loaded.spec, shuffled, loaded.backend, loaded.device, form=weights)
    return LoadedModel(loaded.spec, model, loaded.backend, loaded.device, loaded.refused, weights)


def text_ids(count: int | None = None) -> list[int]:
    """The first ``count`` tokens of the text, or all."""
    ids, front = tokens_of(TextModel.load(prepare(resolve(DEFAULT_MODEL))), TEXT)
    assert front == []
    return ids[:count]


def rows(ids: Sequence[int], progress: Progress) -> list[dict[str, Any]]:
    """A row for each form, compared with the first."""
    return measure_forms(load, FORMS, ids, (), progress)


def _load(dtype: str, weights: WeightForm) -> LoadedModel:
    config = EngineConfig(model=DEFAULT_MODEL, device="cpu", dtype=dtype, weights=weights)
    return load_model(config, lambda phase, fraction: None)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.measure")
    parser.add_argument("--tokens", type=int)
    ids = text_ids(parser.parse_args().tokens)
    with shown_progress() as progress:
        found = rows(ids, progress)
    print(f"{len(ids)} tokens of {TEXT.name}", *rows_table(found), sep="\n")


if __name__ == "__main__":
    main()
