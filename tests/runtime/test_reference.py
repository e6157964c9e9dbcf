"""Greedy tokens of whole batches against transformers, token for token, in float32."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedd.core.request import SamplingParams
from pagedd.errors import ModelNotFound
from pagedd.models.catalog import DEFAULT_MODEL
from pagedd.models.resolve import resolve
from pagedd.runtime import bench_hf
from tests.models.gguf_writer import write_checkpoint
from tests.runtime.harness import Bench
from tests.tiny.models import KINDS, build

NUM_TOKENS = 64


def prompts(vocab: int, longest: int) -> list[list[int]]:
    """20 prompts of mixed lengths; some begin alike, so that the prefix index has work."""
    rng = random.Random(20)
    common = [rng.randrange(10, vocab) for _ in range(33)]
    result = []
    for i in range(20):
        own = [rng.randrange(10, vocab) for _ in range(rng.randrange(1, longest))]
        result.append(common + own if i % 3 == 0 else own)
    return result


@torch.inference_mode()
def check(model: Any, prompt: list[int], tokens: list[int], logprobs: list[float]) -> None:
    """``tokens`` are what greedy generation by ``model`` gives, with their log-probabilities.

    Each is the likeliest after those before it, which by induction is the same, and takes one pass.
    """
    logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    assert tokens == logits.argmax(dim=-1).tolist()
    table = logits.double().log_softmax(-1)
    expected = table.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()
    assert logprobs == pytest.approx(expected, abs=1e-4)


def compare(path: Path, model: Any, asked: list[list[int]], **config: Any) -> None:
    params = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True, logprobs=0)
    bench = Bench(path, dtype="float32", max_num_batched_tokens=64, max_num_seqs=20, **config)
    got = bench.run([(prompt, params) for prompt in asked])
    assert bench.scheduler.stats().prefix_hits > 0
    for prompt, [choice] in zip(asked, got, strict=True):
        assert len(choice.tokens) == NUM_TOKENS
        check(model, prompt, choice.tokens, choice.logprobs)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tiny_models(tmp_path: Path, kind: str) -> None:
    from transformers import AutoModelForCausalLM

    path = build(kind, tmp_path / kind)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    compare(path, model, prompts(296, 90), num_pages=400, page_size=8)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_the_same_weights_as_gguf(tmp_path: Path, kind: str) -> None:
    from transformers import AutoModelForCausalLM

    path = build(kind, tmp_path / kind)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    file = tmp_path / f"{kind}.gguf"
    write_checkpoint(path, file)
    compare(file, model, prompts(296, 40), num_pages=400, page_size=8)


@pytest.mark.slow
def test_the_embedded_model() -> None:
    try:
        path = resolve(DEFAULT_MODEL).path
    except ModelNotFound:
        pytest.skip("the embedded model is not in the cache: pagedd pull")
    job = {"model": DEFAULT_MODEL, "load_format": "auto", "dtype": "float32", "device": "cpu"}
    compare(path, bench_hf.load(job), prompts(49_000, 300), num_pages=400, page_size=32)
