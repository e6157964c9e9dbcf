"""Every family against transformers in float32: prefill, chunks, decode, mixed batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models.paged import (
    Held,
    Paged,
    difference,
    load,
    reference,
    reference_model,
    run,
    tokens_of,
)
from tests.tiny.models import KINDS, build

TOLERANCE = 1e-4


@pytest.mark.parametrize("chunk", [1000, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_prefill_and_forty_decode_steps(kind: str, chunk: int, tmp_path: Path) -> None:
    folder = build(kind, tmp_path)
    assert difference(folder, tokens_of(1, 65), prompt_len=23, chunk=chunk) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_one_step_do_not_touch_each_other(kind: str, tmp_path: Path) -> None:
    folder = build(kind, tmp_path)
    texts = [tokens_of(seed, 12) for seed in range(4)]
    model = reference_model(folder)
    expected = [reference(model, text, prompt_len=12) for text in texts]
    paged = Paged(load(folder))
    held = [Held(prompt_len=12) for _ in texts]
    paged.step([(held[0], texts[0][:11]), (held[1], texts[1][:4])])
    # Two single-token rows, a chunk that goes on and a whole prompt.
    single, also = held[0], held[2]
    first = paged.step([(also, texts[2][:1])])[0]
    logits = paged.step(
        [
            (single, texts[0][11:]),
            (also, texts[2][1:2]),
            (held[1], texts[1][4:]),
            (held[3], texts[3]),
        ]
    )
    wanted = [expected[0][11:], expected[2][1:2], expected[1][4:], expected[3]]
    assert (first - expected[2][:1]).abs().max() < TOLERANCE
    for found, want in zip(logits, wanted, strict=True):
        assert (found - want).abs().max() < TOLERANCE


def test_pages_of_nobody_are_neither_read_nor_written(tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    paged = Paged(load(folder), page_size=4)
    tokens = tokens_of(2, 30)
    logits = run(paged, tokens, prompt_len=13, chunk=5)
    assert logits.isfinite().all()
    assert paged.cache[paged.free].isnan().all()


def test_padding_rows_are_not_written(tmp_path: Path) -> None:
    loaded = load(build("llama", tmp_path))
    paged = Paged(loaded, page_size=4)
    held = Held(prompt_len=3)
    inputs = paged.inputs([(held, 3)])
    inputs.slots[1] = -1
    ids = torch.tensor([5, 6, 7])
    loaded.model.forward(ids, inputs, paged.cache, torch.tensor([3], dtype=torch.int32))
    written = ~paged.cache[held.pages[0], 0, 0, 0].isnan().any(-1)
    assert written.tolist() == [True, False, True, False]


def test_bfloat16_stays_near_float32(tmp_path: Path) -> None:
    folder = build("qwen3", tmp_path)
    tokens = tokens_of(3, 24)
    exact = run(Paged(load(folder)), tokens, prompt_len=20, chunk=8)
    rough = run(Paged(load(folder, dtype="bfloat16")), tokens, prompt_len=20, chunk=8)
    assert rough.dtype == torch.float32
    assert 0 < (rough - exact).abs().mean() < 0.1 * exact.std()
