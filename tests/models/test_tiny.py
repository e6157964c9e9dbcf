"""The builders that other tests stand on: what they promise of their models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from pagedd.models.config import read_spec
from tests.models.paged import Held, Paged, load, reference_model
from tests.tiny.models import KINDS, build, steered
from tests.tiny.tokenizer import EOS, byte_id


def _greedy(paged: Paged, prompt: list[int], count: int) -> list[int]:
    held = Held(prompt_len=len(prompt))
    found, step = [], prompt
    for _ in range(count):
        logits = paged.step([(held, step)])[0][-1]
        found.append(int(logits.argmax()))
        step = found[-1:]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_the_references_and_depends_on_the_whole_context(
    kind: str, tmp_path: Path
) -> None:
    folder = build(kind, tmp_path)
    loaded = load(folder)
    prompt = list(range(40, 60))
    found = _greedy(Paged(loaded), prompt, 64)
    out = reference_model(folder).generate(
        torch.tensor([prompt]), max_new_tokens=64, do_sample=False, eos_token_id=None
    )
    assert found == out[0, len(prompt) :].tolist()
    assert len(set(found)) > 20
    near_the_end = [*prompt[:-3], 99, *prompt[-2:]]
    assert _greedy(Paged(loaded), near_the_end, 64) != found


def test_steered_model_emits_its_cycle(tmp_path: Path) -> None:
    folder = steered(tmp_path, ["one", " tw", "o th", "ree", "😀".encode()[:2], EOS])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tokenizer.encode("hello there").ids
    found = _greedy(Paged(load(folder)), prompt, 8)
    assert found == [300, 301, 302, 303, 304, EOS, 300, 301]
    assert tokenizer.decode(found[:4]) == "one two three"
    assert read_spec(folder, "x").eos_ids == {EOS}


def test_steered_table_changes_a_successor(tmp_path: Path) -> None:
    folder = steered(tmp_path, [10, 11, 12], table={12: 50, 50: 10})
    assert _greedy(Paged(load(folder)), [7], 6) == [10, 11, 12, 50, 10, 11]


def test_steered_refuses_a_token_with_two_successors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        steered(tmp_path, [10, 11, 10, 12])


def test_an_emoji_is_four_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(build("llama", tmp_path) / "tokenizer.json"))
    ids = tokenizer.encode("😀").ids
    assert ids == [byte_id(byte) for byte in "😀".encode()]
    assert tokenizer.decode(ids) == "😀"
