"""Whole texts on a device: recorded steps, kernel after kernel, and transformers."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedd.core.request import SamplingParams
from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel, load_model
from tests.runtime.queued import QueuedBench
from tests.runtime.test_queued import asked, told
from tests.tiny.models import build

DEVICE = os.environ.get("PAGEDD_GPU_TESTS_ON", "cuda")  # cpu: a dry run
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a CUDA device"
    ),
]
NUM_TOKENS = 48


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("qwen3", tmp_path_factory.mktemp("model") / "qwen3", head_dim=32)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    config = EngineConfig(model=str(folder), device=DEVICE, dtype="float32")
    return load_model(config, lambda phase, fraction: None)


@pytest.fixture(scope="module")
def expected(loaded: LoadedModel) -> list[Any]:
    """Kernel after kernel, with room for everybody."""
    return told(bench(loaded, captured=False, num_pages=200).run(asked()))


def bench(loaded: LoadedModel, *, captured: bool, **limits: Any) -> QueuedBench:
    return QueuedBench(
        loaded, captured=captured, page_size=16, device=DEVICE, max_num_batched_tokens=256, **limits
    )


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_recorded_steps_give_the_same_texts(
    loaded: LoadedModel, expected: list[Any], mode: str
) -> None:
    roomy = bench(loaded, captured=True, num_pages=200)
    assert told(roomy.run(asked())) == expected
    tight = bench(loaded, captured=True, num_pages=9, preemption_mode=mode)
    assert told(tight.run(asked(), apart=1)) == expected
    assert tight.preemptions


@pytest.mark.skipif(DEVICE == "cpu", reason="a CPU's cache has no 8 bits")
def test_a_cache_in_8_bits_is_served_and_swapped(folder: Path) -> None:
    config = EngineConfig(model=str(folder), device=DEVICE, kv_cache_dtype="fp8_e5m2")
    narrow = load_model(config, lambda phase, fraction: None)
    roomy = bench(narrow, captured=False, num_pages=200)
    tight = bench(narrow, captured=True, num_pages=9, preemption_mode="swap")
    assert roomy.runner.cache.dtype == tight.runner.cache.dtype == torch.float8_e5m2
    begun = [[each.tokens[0] for each in choices] for choices in roomy.run(asked())]
    assert [[each.tokens[0] for each in choices] for choices in tight.run(asked())] == begun
    assert tight.preemptions


def test_greedy_texts_are_those_of_transformers(folder: Path, loaded: LoadedModel) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(DEVICE).eval()
    draw = random.Random(3)
    prompts = [[draw.randrange(10, 290) for _ in range(draw.randrange(1, 90))] for _ in range(12)]
    params = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    found = bench(loaded, captured=True, num_pages=200).run([(each, params) for each in prompts])
    for prompt, [choice] in zip(prompts, found, strict=True):
        tokens = torch.tensor([prompt], device=DEVICE)
        with torch.inference_mode():
            out = model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                do_sample=False,
                max_new_tokens=NUM_TOKENS,
                min_new_tokens=NUM_TOKENS,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert choice.tokens == out[0, len(prompt) :].tolist()
