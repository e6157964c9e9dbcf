"""Streamed text equals the whole's decoding, byte for byte, whatever the ids (cases B19, B23)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pagedd.text.tokenizer import TextModel
from tests.text import small_models

TOKENIZERS = {
    "byte_level": small_models.byte_level_tokenizer,
    "sentencepiece": small_models.sentencepiece_tokenizer,
    "metaspace": small_models.metaspace_tokenizer,
}
TEXTS = [
    "",
    " ",
    "  two blanks first",
    "a 🙂🙃 b 👩‍👩‍👧 c",
    "\n    indented\n\tcode",
    "Kőln őő 漢字",
    "<s> after a special token</s>  x",
]


def streamed(model: TextModel, ids: list[int], *, skip_special: bool) -> list[str]:
    detokenizer = model.detokenizer(skip_special=skip_special)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


@pytest.fixture(params=sorted(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param]()


@pytest.fixture
def model(tokenizer: Tokenizer) -> TextModel:
    return small_models.text_model(tokenizer)


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
@settings(max_examples=300, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_any_ids_equal_the_decoding_of_all(name: str, data: st.DataObject, skip: bool) -> None:
    tokenizer = TOKENIZERS[name]()
    model = small_models.text_model(tokenizer)
    ids = data.draw(st.lists(st.integers(0, model.vocab_size + 3), max_size=40))
    assert "".join(streamed(model, ids, skip_special=skip)) == tokenizer.decode(
        ids, skip_special_tokens=skip
    )


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_real_texts(model: TextModel, tokenizer: Tokenizer, text: str, skip: bool) -> None:
    ids = model.encode(text, add_bos=False)
    expected = tokenizer.decode(ids, skip_special_tokens=skip)
    assert "".join(streamed(model, ids, skip_special=skip)) == expected


@pytest.mark.parametrize("name", ["byte_level", "sentencepiece"])
def test_no_piece_holds_half_a_character(name: str) -> None:
    model = small_models.text_model(TOKENIZERS[name]())
    text = "x 🙂 y 👩‍👩‍👧 ő z"
    pieces = streamed(model, model.encode(text, add_bos=False), skip_special=True)
    assert "".join(pieces) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_a_character_comes_with_its_last_byte() -> None:
    model = small_models.text_model(small_models.byte_level_tokenizer())
    ids = model.encode("🙂", add_bos=False)
    assert len(ids) == 4
    assert streamed(model, ids, skip_special=True) == ["", "", "", "🙂", ""]


def test_what_never_becomes_a_character_is_shown_at_the_end() -> None:
    model = small_models.text_model(small_models.byte_level_tokenizer())
    ids = model.encode("🙂", add_bos=False)[:3]
    assert streamed(model, ids, skip_special=True) == ["", "", "", "\N{REPLACEMENT CHARACTER}"]


def test_bytes_of_tokens_join_to_the_text(model: TextModel, tokenizer: Tokenizer) -> None:
    if model.info.spelling.bare_start:
        pytest.skip("without byte fallback, unknown characters have no bytes")
    text = "a Kőln 🙂 b"
    joined = b"".join(model.token_bytes(token) for token in model.encode(text, add_bos=False))
    assert joined.decode().lstrip() == text


def test_ids_without_a_token_are_nothing(model: TextModel) -> None:
    beyond = model.vocab_size + 7
    assert model.token_bytes(beyond) == b""
    assert model.token_text(beyond) == ""
    assert streamed(model, [beyond], skip_special=False) == ["", ""]


def test_control_bytes_are_data(model: TextModel) -> None:
    text = "a\x1b[2J\x07\x9b\r\x00b"
    ids = model.encode(text, add_bos=False)
    expected = model.decode(ids, skip_special=False)
    assert "".join(streamed(model, ids, skip_special=False)) == expected
    if not model.info.spelling.bare_start:
        assert expected == text


def test_the_embedded_model(tmp_path: Path) -> None:
    _, model = small_models.embedded_model(tmp_path)
    tokenizer = Tokenizer.from_file(str(next(tmp_path.glob("text/*/tokenizer.json"))))
    rng = random.Random(5)
    for _ in range(300):
        ids = [rng.randrange(model.vocab_size) for _ in range(rng.randrange(30))]
        skip = rng.random() < 0.5
        expected = tokenizer.decode(ids, skip_special_tokens=skip)
        assert "".join(streamed(model, ids, skip_special=skip)) == expected
