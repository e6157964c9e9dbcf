"""Word splits by name, on inputs where the kinds differ."""

from __future__ import annotations

import pytest

from pagedd.errors import ModelError
from pagedd.text.pretokenizers import splitting


def words(name: str, text: str) -> list[str]:
    split = splitting(name)
    normalizer = split.normalizer()
    if normalizer is not None:
        text = normalizer.normalize_str(text)
    return [text[start:end] for _, (start, end) in split.pre_tokenizer().pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "in 12345 I'LL", ["in", " 12345", " I", "'", "LL"]),
        ("smollm", "in 123", ["in", " ", "1", "2", "3"]),
        ("llama-bpe", "in 12345 I'LL", ["in", " ", "123", "45", " I", "'LL"]),
        ("llama-bpe", "x!\n\ny", ["x", "!\n\n", "y"]),
        ("qwen2", "in 123", ["in", " ", "1", "2", "3"]),
        ("qwen2", "e\u0301t", ["\u00e9t"]),
        ("tekken", "camelCase 12", ["camel", "Case", " ", "1", "2"]),
        ("deepseek-coder", "a\nb 漢字 12", ["a", "\n", "b", " ", "漢字", " ", "1", "2"]),
        ("deepseek-v3", "a 1234漢字", ["a", " ", "123", "4", "漢字"]),
    ],
)
def test_words(name: str, text: str, expected: list[str]) -> None:
    assert words(name, text) == expected


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"'nope'.*known: .*llama-bpe"):
        splitting("nope")
