"""One choice's text: min_tokens, end tokens, stop strings over tokens (cases B20, B22, B51)."""

from __future__ import annotations

import pytest

from pagedd.text.stops import Found, StopStrings
from pagedd.text.stream import ChoiceText
from pagedd.text.tokenizer import TextModel
from tests.text import small_models


@pytest.fixture
def model() -> TextModel:
    return small_models.text_model(small_models.byte_level_tokenizer())


def choice(
    model: TextModel,
    stops: list[str] | None = None,
    *,
    include_stop: bool = False,
    min_tokens: int = 0,
    skip_special: bool = True,
) -> ChoiceText:
    return ChoiceText(
        model.detokenizer(skip_special=skip_special),
        StopStrings(stops or []),
        include_stop=include_stop,
        min_tokens=min_tokens,
    )


def letters(model: TextModel, text: str) -> list[int]:
    """One token per letter."""
    return [model.encode(letter, add_bos=False)[0] for letter in text]


def run(text: ChoiceText, ids: list[int]) -> tuple[str, str | None, int]:
    """Text, stop string, and the number of tokens that were taken."""
    shown = ""
    for count, token in enumerate(ids, 1):
        found = text.push(token)
        shown += found.text
        if found.stop is not None:
            return shown, found.stop, count
    found = text.finish()
    return shown + found.text, found.stop, len(ids)


def test_a_stop_string_ends_the_choice(model: TextModel) -> None:
    assert run(choice(model, ["cd"]), letters(model, "abcdef")) == ("ab", "cd", 4)


@pytest.mark.parametrize(
    ("min_tokens", "taken"), [(0, 2), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (7, 6)]
)
def test_min_tokens(model: TextModel, min_tokens: int, taken: int) -> None:
    text = choice(model, ["b"], min_tokens=min_tokens)
    shown, stop, count = run(text, letters(model, "abcbdb"))
    assert count == taken
    assert (stop is None) == (min_tokens > 6)
    assert shown == ("abcbdb" if stop is None else "abcbdb"[: taken - 1])


def test_a_stop_may_begin_before_min_tokens(model: TextModel) -> None:
    assert run(choice(model, ["bc"], min_tokens=3), letters(model, "abcd")) == ("a", "bc", 3)


def test_end_tokens_are_not_shown(model: TextModel) -> None:
    (end,) = model.encode("</s>", add_bos=False)
    text = choice(model, include_stop=True, skip_special=False)
    assert text.push(end, end=True) == Found("", None)
    assert text.finish() == Found("", None)


@pytest.mark.parametrize(("include", "shown"), [(False, ""), (True, "x")])
def test_an_explicit_stop_id_is_shown_if_asked(model: TextModel, include: bool, shown: str) -> None:
    text = choice(model, include_stop=include)
    assert text.push(letters(model, "x")[0], end=True, explicit=True).text == shown


def test_text_held_back_comes_when_the_choice_ends(model: TextModel) -> None:
    assert run(choice(model, ["abcd"]), letters(model, "xabc")) == ("xabc", None, 4)


def test_half_a_character_comes_at_the_end(model: TextModel) -> None:
    ids = model.encode("🙂", add_bos=False)[:2]
    assert run(choice(model), ids) == ("\N{REPLACEMENT CHARACTER}", None, 2)


def test_the_end_can_complete_a_stop_string(model: TextModel) -> None:
    ids = [*letters(model, "a"), *model.encode("🙂", add_bos=False)[:2]]
    assert run(choice(model, ["\N{REPLACEMENT CHARACTER}"]), ids)[:2] == (
        "a",
        "\N{REPLACEMENT CHARACTER}",
    )


def test_choices_share_nothing(model: TextModel) -> None:
    stops = StopStrings(["ab"])
    one = ChoiceText(model.detokenizer(skip_special=True), stops)
    two = ChoiceText(model.detokenizer(skip_special=True), stops)
    a, b = letters(model, "ab")
    assert one.push(a).text == ""
    assert two.push(b).text == "b"
    assert one.push(b).stop == "ab"
