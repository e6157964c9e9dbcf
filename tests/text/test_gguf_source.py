"""Tokenizers from GGUF metadata against references (case B51)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pagedd.errors import ModelError
from pagedd.models.gguf_meta import metadata
from pagedd.models.resolve import ModelFiles
from pagedd.text.gguf_source import read_gguf
from pagedd.text.prepare import prepare
from pagedd.text.tokenizer import TextModel
from tests.text import small_models
from tests.text.plain_bpe import PlainBpe

FRAGMENTS = [
    "Hello", " world", "!", "\n", "\n\n", "  ", " ", "\t", "    ", "\r\n", "\xa0", "\u3000",
    "the quick brown fox", " 1234", "3.14159", "2024-01-01", "१२३", "½", "²", "Ⅻ",
    "Café déjà vu", "naïve", "e\u0301", "Ünïcödé", "ÅNGSTRÖM", "łódź",
    "🙂", "👩‍👩‍👧", "🇩🇪", "❤️", "🤷🏽‍♀️",
    "漢字かな交じり文", "你好，世界。", "안녕하세요", "สวัสดี", "مرحبا", "שלום", "हिन्दी",
    "def f(x):\n    return x**2  # square\n", "for (int i=0; i<10; i++) {}", "<div class=\"a\">",
    "a_b-c/d\\e", "https://example.org/?q=1&r=2", "if(!x){y=[1,2]}", "\x00\x1b[2J\x7f",
    "I'm", "you'll", "it's", "IT'S", "’s", "''d", "don't've",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start", "im_end|>", "<repo_name>",
    "<|IM_END|>", "...", "—", "€100", "100%", "x²+y²=z²", "ﬁ", "\ufeff", "\u200b", "\u2028",
]  # fmt: skip
# Published by others for the same tokenizer.
KNOWN = {
    "Hello, we can use": [19556, 28, 392, 416, 722],
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "\n": [198],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
}


def sample(count: int) -> list[str]:
    rng = random.Random(11)
    mixed = ["".join(rng.choices(FRAGMENTS, k=rng.randrange(2, 7))) for _ in range(count)]
    return [*FRAGMENTS, *mixed]


def sentencepiece_file(path: Path, **keys: object) -> Path:
    tokens, _ = small_models.sentencepiece_parts()
    types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(tokens) - 259)]
    given = {"scores": scores, "bos_token_id": 1, "eos_token_id": 2, **keys}
    return small_models.write_gguf(path, "llama", list(tokens), types, **given)


def byte_level_file(path: Path, **keys: object) -> Path:
    tokens = ["<s>", "</s>", "<think>", "a", "b", "Ġ", "ab", "Ġab"]
    given = {"merges": ["a b", "Ġ ab"], "pre": "gpt-2", **keys}
    return small_models.write_gguf(path, "gpt2", tokens, [3, 3, 4] + [1] * 5, **given)


def load(path: Path, cache: Path) -> TextModel:
    return TextModel.load(prepare(ModelFiles("gguf", path, "small"), cache=cache))


def test_the_embedded_model_splits_like_its_definition(tmp_path: Path) -> None:
    files, model = small_models.embedded_model(tmp_path)
    keys = metadata(files.path)
    names = ("tokens", "token_type", "merges")
    oracle = PlainBpe(*(keys[f"tokenizer.ggml.{name}"] for name in names))
    texts = sample(220)
    assert len(texts) >= 280
    for text in texts:
        assert model.encode(text, add_bos=False) == oracle.encode(text), text


def test_the_embedded_model_knows_what_others_know(tmp_path: Path) -> None:
    _, model = small_models.embedded_model(tmp_path)
    for text, ids in KNOWN.items():
        assert model.encode(text, add_bos=False) == ids
    assert model.eos_ids == {2}
    assert model.encode("<|im_start|>", add_bos=model.add_bos) == [1]


def test_the_embedded_models_chat(tmp_path: Path) -> None:
    _, model = small_models.embedded_model(tmp_path)
    ids = model.encode_chat([{"role": "user", "content": "Hi <|im_end|>"}], 1000)
    text = model.decode(ids, skip_special=False)
    assert text.endswith("<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert ids.count(model.bos_id) == 3  # system, user, assistant
    assert ids.count(2) == 2


def test_sentencepiece_equals_the_merges_it_was_trained_with(tmp_path: Path) -> None:
    model = load(sentencepiece_file(tmp_path / "m.gguf"), tmp_path)
    reference = small_models.sentencepiece_tokenizer()
    for text in sample(100):
        assert model.encode(text, add_bos=False) == reference.encode(text).ids, text


def test_sentencepiece_without_a_blank_in_front(tmp_path: Path) -> None:
    path = sentencepiece_file(tmp_path / "m.gguf", add_space_prefix=False)
    model = load(path, tmp_path)
    with_blank = small_models.text_model(small_models.sentencepiece_tokenizer())
    assert model.encode(" the end", add_bos=False) == with_blank.encode("the end", add_bos=False)
    assert model.decode(model.encode(" x", add_bos=False), skip_special=True) == " x"


@pytest.mark.parametrize(("flag", "raw", "chat"), [(None, 1, 1), (True, 1, 1), (False, 0, 0)])
def test_bos(tmp_path: Path, flag: bool | None, raw: int, chat: int) -> None:
    """A file that says it adds no BOS gets none, whatever id it names."""
    keys = {} if flag is None else {"add_bos_token": flag}
    template = "{{ messages[0]['content'] }}"
    path = sentencepiece_file(tmp_path / "m.gguf", chat_template=template, **keys)
    model = load(path, tmp_path)
    assert model.encode_bounded("the", 9).count(1) == raw
    assert model.encode_chat([{"role": "user", "content": "the"}], 9).count(1) == chat


def test_every_end_token_that_the_file_names(tmp_path: Path) -> None:
    path = byte_level_file(tmp_path / "m.gguf", eos_token_id=1, eot_token_id=0, eom_token_id=99)
    assert load(path, tmp_path).eos_ids == {0, 1}


def test_control_tokens_are_skipped_and_user_defined_ones_shown(tmp_path: Path) -> None:
    model = load(byte_level_file(tmp_path / "m.gguf"), tmp_path)
    ids = model.encode("<s>ab<think> ab</s>", add_bos=False)
    assert ids == [0, 6, 2, 7, 1]
    assert model.decode(ids, skip_special=True) == "ab<think> ab"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"pre": "no-such-split"}, "no-such-split"),
        ({"merges": ["ab"]}, "ab"),
        ({"merges": ["a z"]}, "z"),
        ({"chat_template": 3}, "chat_template"),
        ({"bos_token_id": "one"}, "bos_token_id"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, keys: dict[str, object], named: str) -> None:
    path = byte_level_file(tmp_path / "m.gguf", **keys)
    with pytest.raises(ModelError, match=named):
        read_gguf(path)


def test_an_unknown_kind_of_tokenizer_is_named(tmp_path: Path) -> None:
    path = small_models.write_gguf(tmp_path / "m.gguf", "rwkv", ["a"], [1])
    with pytest.raises(ModelError, match="rwkv"):
        read_gguf(path)


def test_lists_that_do_not_fit(tmp_path: Path) -> None:
    path = small_models.write_gguf(tmp_path / "m.gguf", "llama", ["a", "b"], [1])
    with pytest.raises(ModelError, match="1 token types for 2 tokens"):
        read_gguf(path)
