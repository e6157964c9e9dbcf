"""The runner for a device with a queue gives the texts of the one that waits for each step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedd.core.request import SamplingParams
from pagedd.engine.messages import EngineConfig
from pagedd.models.decoder import Decoder
from pagedd.models.load import LoadedModel, load_model
from pagedd.models.weights import SafetensorsWeights
from pagedd.runtime.device_step import buckets
from pagedd.runtime.queued_batch import MOST_CHANGES, QueuedBatch
from pagedd.runtime.reading import Reading
from pagedd_kernels.inputs import FP8
from pagedd_kernels.reference import TorchBackend
from tests.models.paged import Held, Paged
from tests.runtime import queued
from tests.runtime.harness import SAMPLING, Asked, Bench, Outcome
from tests.runtime.queued import QueuedBench
from tests.tiny.models import build

KINDS = [*SAMPLING, {"seed": 16, "logit_bias": {7: 4.0, 9: -100.0}, "logprobs": 0}]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = build("qwen3", tmp_path_factory.mktemp("model") / "qwen3")
    return load_model(EngineConfig(model=str(path), device="cpu"), lambda phase, fraction: None)


def asked() -> list[Asked]:
    """A prompt for each kind of sampling, half of them with a common beginning."""
    rng = random.Random(1)
    common = [rng.randrange(5, 250) for _ in range(21)]
    found: list[Asked] = []
    for i, changes in enumerate(KINDS):
        own = [rng.randrange(5, 250) for _ in range(rng.randrange(1, 30))]
        params = SamplingParams(**({"max_tokens": 24} | changes))
        found.append((common + own if i % 2 else own, params))
    return found


def told(outcomes: list[list[Outcome]]) -> list[Any]:
    """Tokens, endings, and log-probabilities as far as rounding does not matter."""
    return [
        (
            choice.tokens,
            choice.finish,
            [round(each, 3) for each in choice.logprobs],
            [[each.token for each in top] for top in choice.top],
        )
        for choices in outcomes
        for choice in choices
    ]


@pytest.fixture(scope="module")
def expected(loaded: LoadedModel) -> list[Any]:
    return told(Bench(loaded, num_pages=200, page_size=8).run(asked()))


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize(
    "limits",
    [
        {"num_pages": 200},
        {"num_pages": 14, "preemption_mode": "swap"},
        {"num_pages": 14, "preemption_mode": "recompute", "max_num_batched_tokens": 16},
        {"num_pages": 40, "max_num_seqs": 3, "prefix_cache": False},
    ],
    ids=["roomy", "swap", "recompute", "slots"],
)
def test_the_same_texts(
    loaded: LoadedModel, expected: list[Any], captured: bool, limits: dict[str, Any]
) -> None:
    bench = QueuedBench(loaded, captured=captured, page_size=8, **limits)
    before = queued.Again.replays
    assert told(bench.run(asked(), apart=2)) == expected
    assert (queued.Again.replays > before) == captured
    assert bool(bench.preemptions) == (limits["num_pages"] == 14)


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_a_cache_in_8_bits(loaded: LoadedModel, tmp_path: Path, dtype: torch.dtype) -> None:
    weights, backend = SafetensorsWeights(build("qwen3", tmp_path)), TorchBackend()
    spec = replace(loaded.spec, kv_dtype=dtype)
    narrow = replace(
        loaded, spec=spec, model=Decoder(spec, weights, backend, loaded.device), backend=backend
    )
    prompts = [prompt for prompt, _ in asked()]
    params = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True, logprobs=0)
    bench = QueuedBench(narrow, captured=True, num_pages=14, page_size=8, preemption_mode="swap")
    assert bench.runner.cache.dtype == bench.runner.host_cache.pages.dtype == dtype
    assert bench.shape.page_bytes == bench.runner.cache[0].nbytes
    assert f"KV cache: in {str(dtype).removeprefix('torch.')}" in bench.shape.notes
    found = bench.run([(prompt, params) for prompt in prompts])
    assert bench.preemptions
    wanted = [first_logprob(narrow, prompt) for prompt in prompts]
    assert [choice.logprobs[0] for [choice] in found] == pytest.approx(wanted, abs=0.01)
    assert wanted != pytest.approx([first_logprob(loaded, each) for each in prompts], abs=0.05)


@torch.inference_mode()
def first_logprob(model: LoadedModel, prompt: Sequence[int]) -> float:
    """Of the likeliest token after a prompt that is computed at once."""
    [logits] = Paged(model).step([(Held(len(prompt)), prompt)])
    return float(logits[-1].log_softmax(-1).max())


def test_steps_without_memory_are_tried_again_smaller(
    loaded: LoadedModel, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = QueuedBench(loaded, captured=False, num_pages=200, page_size=8)
    forward, failed = loaded.model.forward, []

    def limited(token_ids: torch.Tensor, *arguments: Any) -> torch.Tensor:
        if len(token_ids) > 5:
            failed.append(len(token_ids))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(token_ids, *arguments)

    monkeypatch.setattr(loaded.model, "forward", limited)
    assert told(bench.run(asked())) == expected
    assert failed
    assert {each.lack for each in bench.preempted} == {"memory"}


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_a_step_that_fails_after_it_has_drawn_is_drawn_once(
    loaded: LoadedModel, expected: list[Any], captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for the log-probabilities: the tokens that it started from are still there."""
    bench = QueuedBench(loaded, captured=captured, num_pages=200, page_size=8)
    read, calls = Reading.of, itertools.count()

    def of(*arguments: Any) -> Reading:
        if next(calls) in (3, 9, 15):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return read(*arguments)

    monkeypatch.setattr(Reading, "of", of)
    assert told(bench.run(asked())) == expected
    assert bench.preempted


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [1]), (2, [1, 2]), (8, [1, 2, 4, 8]), (13, [1, 2, 4, 8, 13])]
)
def test_buckets(most: int, expected: list[int]) -> None:
    assert buckets(most) == expected


def test_more_changes_of_tables_than_a_step_takes_along() -> None:
    """They go before it; what is changed twice has the last value."""
    batch = QueuedBatch(
        max_num_seqs=2,
        max_tokens=4,
        max_model_len=MOST_CHANGES,
        page_size=1,
        device=torch.device("cpu"),
    )
    batch._changes = {place: place + 1 for place in range(MOST_CHANGES + 3)}
    batch._changes[5] = 77
    batch._send_excess()
    flat = batch.tables.view(-1)
    assert flat[:4].tolist() == [1, 2, 3, 4]
    assert flat[5] == 77
    assert flat[MOST_CHANGES + 2] == MOST_CHANGES + 3
    assert not batch._changes
