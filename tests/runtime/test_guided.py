"""Answers that keep to a grammar, from both runners: the same with preemptions as without."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedd.core.request import SamplingParams
from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel, load_model
from pagedd.models.resolve import resolve
from pagedd.protocol import Params
from pagedd.runtime.grammar import Grammars
from pagedd.runtime.reading import Reading
from pagedd.server.structure import grammar_of
from pagedd.text.prepare import prepare
from pagedd.text.tokenizer import TextModel
from tests.runtime.harness import Asked, Bench, Outcome
from tests.runtime.queued import QueuedBench
from tests.tiny.models import build
from tests.tiny.tokenizer import EOS

SCHEMA = {
    "type": "object",
    "properties": {
        "the": {"type": "string", "maxLength": 24},
        "on": {"type": "array", "items": {"type": "integer", "maximum": 999}, "maxItems": 4},
        "in": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 9}]},
    },
    "required": ["the", "on", "in"],
    "additionalProperties": False,
}
FORMS: list[dict[str, Any]] = [
    {"guided_json": SCHEMA},
    {"guided_regex": "(the|[0-9]{2}/){9,12}"},
    {"guided_choice": ["then there was", "the other thing", "no"]},
]
WAYS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"seed": 21},
    {"seed": 22, "n": 3},
    {"seed": 23, "top_p": 0.8, "presence_penalty": 0.7, "logprobs": 1},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("qwen3", tmp_path_factory.mktemp("model") / "qwen3")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return load_model(EngineConfig(model=str(folder), device="cpu"), lambda phase, fraction: None)


@pytest.fixture(scope="module")
def text_dir(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(resolve(str(folder)), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def text(text_dir: Path) -> TextModel:
    return TextModel.load(text_dir)


@pytest.fixture(scope="module")
def grammars(loaded: LoadedModel, text_dir: Path) -> Grammars:
    spec = loaded.spec
    return Grammars(text_dir, vocab_size=spec.vocab_size, eos_ids=spec.eos_ids)


def asked() -> list[Asked]:
    """Every form in every way, and some without a form between them."""
    rng = random.Random(3)
    found: list[Asked] = []
    for at, way in enumerate(WAYS * len(FORMS)):
        prompt = [rng.randrange(5, 250) for _ in range(rng.randrange(2, 30))]
        grammar = grammar_of(Params(**FORMS[at % len(FORMS)]))
        found.append((prompt, SamplingParams(max_tokens=150, grammar=grammar, **way)))
        if at % 3 == 0:
            free = SamplingParams(max_tokens=40, seed=at, ignore_eos=True)
            found.append((prompt, free))
    return found


def told(outcomes: Sequence[Sequence[Outcome]]) -> list[Any]:
    return [
        (choice.tokens, choice.finish, [round(each, 3) for each in choice.logprobs])
        for choices in outcomes
        for choice in choices
    ]


def plain(loaded: LoadedModel, grammars: Grammars, **limits: Any) -> Bench:
    bench = Bench(loaded, page_size=8, **limits)
    bench.runner.sampler.rows.grammars = grammars
    return bench


def queued(
    loaded: LoadedModel, grammars: Grammars, *, captured: bool, **limits: Any
) -> QueuedBench:
    bench = QueuedBench(loaded, captured=captured, page_size=8, **limits)
    bench.runner.rows.grammars = grammars
    return bench


@pytest.fixture(scope="module")
def expected(loaded: LoadedModel, grammars: Grammars) -> list[list[Outcome]]:
    bench = plain(loaded, grammars, num_pages=400, max_num_seqs=32)
    outcomes = bench.run(asked())
    assert not bench.preemptions
    return outcomes


def test_answers_have_their_form(expected: list[list[Outcome]], text: TextModel) -> None:
    texts = set()
    for (_, params), choices in zip(asked(), expected, strict=True):
        for choice in choices if params.grammar is not None else ():
            assert choice.finish == "stop"
            assert choice.tokens[-1] == EOS
            texts.add(said := text.decode(choice.tokens, skip_special=True))
            assert EOS not in choice.tokens[:-1]
            if said.startswith("{"):
                answer = json.loads(said)
                assert list(answer) == ["the", "on", "in"]
                assert len(answer["the"]) <= 24
    assert len(texts) > 10


TIGHT = [
    {"num_pages": 30, "preemption_mode": "swap"},
    {"num_pages": 30, "preemption_mode": "recompute", "max_num_batched_tokens": 32},
    {"num_pages": 60, "max_num_seqs": 4, "prefix_cache": False},
]
IDS = ["swap", "recompute", "slots"]


@pytest.mark.parametrize("limits", TIGHT, ids=IDS)
def test_the_same_answers_when_there_is_no_room(
    loaded: LoadedModel, grammars: Grammars, expected: list[list[Outcome]], limits: dict[str, Any]
) -> None:
    bench = plain(loaded, grammars, **limits)
    assert told(bench.run(asked(), apart=2)) == told(expected)
    assert bool(bench.preemptions) == (limits["num_pages"] == 30)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("limits", [{"num_pages": 400}, *TIGHT], ids=["roomy", *IDS])
def test_a_queue_gives_the_same_answers(
    loaded: LoadedModel,
    grammars: Grammars,
    expected: list[list[Outcome]],
    captured: bool,
    limits: dict[str, Any],
) -> None:
    """The runner that launches a step before it knows what the one before has drawn."""
    bench = queued(loaded, grammars, captured=captured, **limits)
    assert told(bench.run(asked(), apart=2)) == told(expected)
    assert bool(bench.preemptions) == (limits["num_pages"] == 30)


def test_a_step_that_is_tried_again_tells_the_grammars_once(
    loaded: LoadedModel,
    grammars: Grammars,
    expected: list[list[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No memory after the masks were filled: the tokens of the step before have been told."""
    bench = queued(loaded, grammars, captured=False, num_pages=400)
    read, calls = Reading.of, iter(range(10**6))

    def of(*arguments: Any) -> Reading:
        if next(calls) in (3, 9, 15, 40):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return read(*arguments)

    monkeypatch.setattr(Reading, "of", of)
    assert told(bench.run(asked())) == told(expected)
    assert {each.lack for each in bench.preempted} == {"memory"}


def test_seeds_keep_their_text_beside_others(
    loaded: LoadedModel, grammars: Grammars, expected: list[list[Outcome]]
) -> None:
    """Alone, in another order, and again."""
    different = 0
    for (prompt, params), choices in zip(asked(), expected, strict=True):
        if params.grammar is not None and params.n == 3:
            bench = plain(loaded, grammars, num_pages=60)
            assert told(bench.run([(prompt, params)])) == told([choices])
            different += len({tuple(choice.tokens) for choice in choices})
    assert different > 3, "each choice has a stream of its own"
