"""What the tests of grammars share: the tiny tokenizer, and reading masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagedd.protocol import Params
from pagedd.runtime.grammar import Grammars, Guide
from pagedd.server.structure import grammar_of
from tests.server.harness import make_text_dir
from tests.tiny.tokenizer import EOS, VOCAB_SIZE

WIDTH = VOCAB_SIZE + 20  # logits are often wider than the vocabulary


@pytest.fixture(scope="module")
def text_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_dir(tmp_path_factory.mktemp("text") / "tiny")


@pytest.fixture
def grammars(text_dir: Path) -> Grammars:
    return Grammars(text_dir, vocab_size=WIDTH, eos_ids={EOS})


def allowed(grammars: Grammars, *guides: Guide) -> list[set[int]]:
    """The ids that the guides' masks allow."""
    masks = grammars.fill(guides)
    assert masks.shape == (len(guides), -(-WIDTH // 32))
    bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
    return [set(np.flatnonzero(row[:WIDTH]).tolist()) for row in bits]


def written(**form: Any) -> str:
    grammar = grammar_of(Params(**form))
    assert grammar is not None
    return grammar
