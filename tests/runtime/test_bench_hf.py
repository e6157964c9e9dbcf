"""The static batches that ``pagedd bench`` compares with are transformers' own arithmetic."""

from __future__ import annotations

from pathlib import Path

import torch

from pagedd.runtime.bench_hf import left_padded, load
from tests.tiny.models import build, random_model


def test_padding_is_on_the_left() -> None:
    ids, mask = left_padded([[1, 2, 3], [4]], "cpu")
    assert ids.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_a_folder_is_loaded_with_its_weights(tmp_path: Path) -> None:
    job = {"load_format": "auto", "dtype": "float32", "device": "cpu"}
    model = load({**job, "model": str(build("llama", tmp_path))})
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        expected = random_model("llama")(ids).logits
        assert torch.equal(model(ids).logits, expected)
