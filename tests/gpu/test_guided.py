"""Answers with a form on a device: the masks come while the next step is in the queue already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagedd.models.load import LoadedModel
from pagedd.models.resolve import resolve
from pagedd.runtime.grammar import Grammars
from pagedd.text.prepare import prepare
from pagedd.text.tokenizer import TextModel
from tests.gpu import test_graphs
from tests.gpu.test_graphs import bench, pytestmark
from tests.runtime.queued import QueuedBench
from tests.runtime.test_guided import asked, told

__all__ = ["pytestmark"]
folder, loaded = test_graphs.folder, test_graphs.loaded  # the fixtures


@pytest.fixture(scope="module")
def text_dir(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(resolve(str(folder)), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def grammars(loaded: LoadedModel, text_dir: Path) -> Grammars:
    spec = loaded.spec
    return Grammars(text_dir, vocab_size=spec.vocab_size, eos_ids=spec.eos_ids)


def guided(loaded: LoadedModel, grammars: Grammars, **limits: Any) -> QueuedBench:
    found = bench(loaded, **limits)
    found.runner.rows.grammars = grammars
    return found


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_recorded_steps_give_the_same_answers(
    loaded: LoadedModel, grammars: Grammars, text_dir: Path, mode: str
) -> None:
    outcomes = guided(loaded, grammars, captured=False, num_pages=200).run(asked())
    expected = told(outcomes)
    roomy = guided(loaded, grammars, captured=True, num_pages=200)
    assert told(roomy.run(asked())) == expected
    tight = guided(loaded, grammars, captured=True, num_pages=16, preemption_mode=mode)
    assert told(tight.run(asked(), apart=1)) == expected
    assert tight.preemptions
    text = TextModel.load(text_dir)
    for (_, params), choices in zip(asked(), outcomes, strict=True):
        for choice in choices if params.grammar is not None else ():
            assert choice.finish == "stop"
            said = text.decode(choice.tokens, skip_special=True)
            assert not said.startswith("{") or set(json.loads(said)) == {"the", "on", "in"}
