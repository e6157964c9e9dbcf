"""The same text whatever the pool, the budget, the mates and the sharing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pagedd.core.request import SamplingParams
from tests.runtime.harness import SAMPLING, Asked, Bench, Outcome
from tests.tiny.models import KINDS, build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


def model(folder: Path, kind: str) -> Path:
    path = folder / kind
    return path if path.exists() else build(kind, path)


def prompts(count: int, seed: int) -> list[list[int]]:
    """Prompts of mixed lengths, half of them with a common beginning."""
    rng = random.Random(seed)
    common = [rng.randrange(5, 250) for _ in range(21)]
    result = []
    for i in range(count):
        own = [rng.randrange(5, 250) for _ in range(rng.randrange(1, 40))]
        result.append(common + own if i % 2 else own)
    return result


def alone(path: Path, asked: list[Asked], **config: Any) -> list[list[Outcome]]:
    """Each request by itself, in a pool without end, nothing shared."""
    bench = Bench(path, prefix_cache=False, num_pages=200, page_size=8, **config)
    return [bench.run([request])[0] for request in asked]


def tokens(outcomes: list[list[Outcome]]) -> list[list[tuple[list[int], str | None]]]:
    return [[(choice.tokens, choice.finish) for choice in choices] for choices in outcomes]


def asked(count: int, seed: int = 0) -> list[Asked]:
    return [
        (prompt, SamplingParams(max_tokens=24 + 3 * i, **SAMPLING[i % len(SAMPLING)]))
        for i, prompt in enumerate(prompts(count, seed))
    ]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_tight_pool_changes_no_token(folder: Path, kind: str) -> None:
    path, requests = model(folder, kind), asked(8)
    expected = tokens(alone(path, requests))
    tight = Bench(path, num_pages=16, page_size=8, max_num_seqs=6, max_num_batched_tokens=17)
    got = tight.run(requests)
    assert tokens(got) == expected
    assert tight.preemptions >= 4
    for (_, params), choices in zip(requests, got, strict=True):
        for choice in choices:
            expected_entries = len(choice.tokens) if params.logprobs is not None else 0
            assert len(choice.logprobs) == expected_entries
    again = tight.run(requests)  # now from a warm prefix index
    assert tokens(again) == expected


@pytest.mark.parametrize("page_size", [1, 5, 16, 48])
@pytest.mark.parametrize("budget", [1, 64])
def test_page_size_and_budget_change_no_token(folder: Path, page_size: int, budget: int) -> None:
    path, requests = model(folder, "llama"), asked(5, seed=1)
    bench = Bench(
        path, num_pages=900 // page_size, page_size=page_size, max_num_batched_tokens=budget
    )
    assert tokens(bench.run(requests)) == tokens(alone(path, requests))


def test_prompts_at_page_borders_sent_twice(folder: Path) -> None:
    path = model(folder, "qwen3")
    rng = random.Random(5)
    for budget in (1, 8, 64):
        bench = Bench(path, num_pages=60, page_size=8, max_num_batched_tokens=budget)
        for length in (7, 8, 9, 15, 16, 17, 23, 24, 25):
            prompt = [rng.randrange(5, 250) for _ in range(length)]
            request = (prompt, SamplingParams(max_tokens=6, temperature=0.0))
            first, second = bench.run([request]), bench.run([request])
            assert tokens(first) == tokens(second) == tokens(alone(path, [request]))


def test_bfloat16_is_bitwise_the_same_in_a_crowd(folder: Path) -> None:
    path, requests = model(folder, "llama"), asked(8, seed=2)
    crowd = Bench(path, dtype="bfloat16", num_pages=16, page_size=8, max_num_batched_tokens=19)
    if crowd.loaded.backend.name != "cpu":
        pytest.skip("only the compiled CPU backend promises this")
    expected = alone(path, requests, dtype="bfloat16")
    got = crowd.run(requests)
    assert crowd.preemptions >= 2
    assert tokens(got) == tokens(expected)
    for one, other in zip(got, expected, strict=True):
        assert [choice.logprobs for choice in one] == [choice.logprobs for choice in other]


def test_prompts_whose_rope_depends_on_their_length_share_no_wrong_page(folder: Path) -> None:
    """dynamic scaling: beyond 32 tokens the same token has other keys in a longer prompt."""
    rope = {"rope_type": "dynamic", "factor": 4.0}
    path = build("llama", folder / "dynamic", rope_scaling=rope, max_position_embeddings=32)
    rng = random.Random(8)
    text = [rng.randrange(5, 250) for _ in range(60)]
    params = SamplingParams(max_tokens=10, temperature=0.0)
    requests = [(text[:length], params) for length in (60, 50, 33, 32, 30, 60, 40)]
    bench = Bench(path, num_pages=60, page_size=4)
    got = [bench.run([request])[0] for request in requests]
    assert tokens(got) == tokens(alone(path, requests))
    assert bench.scheduler.stats().prefix_hits > 0
