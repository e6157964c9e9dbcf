"""Stop strings, ends and spaces over both edges (cases B20, B22 and B23)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.http.edges import HTTP_EDGES, Served, ask
from tests.http.models import serving, text_of
from tests.server.harness import Daemon
from tests.text import small_models
from tests.tiny.models import steered
from tests.tiny.tokenizer import EOS, byte_id

PIECES = ("one", " tw", "o th", "ree", " four")
WHOLE = "one two three four"
NEWLINE = byte_id(ord("\n"))
LETTER = byte_id(ord("a"))
Folders = Callable[[], Path]


@pytest.fixture(scope="module")
def counting() -> Iterator[Served]:
    """A model that says "one two three four", again and again."""
    with serving() as serve:
        yield serve(lambda folder: steered(folder, PIECES))


@pytest.fixture(scope="module")
def ending() -> Iterator[Served]:
    """A model that says "a", a line's end, and that it has ended."""
    with serving() as serve:
        yield serve(lambda folder: steered(folder, [LETTER, NEWLINE, EOS]))


# --- B20: stop strings ----------------------------------------------------------------------------


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("stop", "before", "found"),
    [
        ("two three", "one ", "two three"),
        ("ree", "one two th", "ree"),
        ("one", "", "one"),
        (["two", "two three"], "one ", "two"),
        (["two three", "two"], "one ", "two"),
        (["three", "two three"], "one ", "two three"),
        (["four", "three"], "one two ", "three"),
        (["e t"], "on", "e t"),
        ("fourone", "one two three ", "fourone"),
    ],
)
def test_b20_a_stop_string_over_tokens(
    counting: Served, edge: str, stop: str | list[str], before: str, found: str, include: bool
) -> None:
    answer = ask(
        edge,
        counting,
        "x",
        max_tokens=12,
        temperature=0,
        stop=stop,
        include_stop_str_in_output=include,
    )
    assert answer.text == before + (found if include else "")
    assert answer.finish_reason == "stop"
    assert answer.choices[0].stop_reason == found


@pytest.mark.parametrize("stop", ["two three five", "fone", "xone", ["fo", "two five"][1:]])
def test_b20_what_only_begins_like_a_stop_string_comes_whole(
    counting: Served, edge: str, stop: str | list[str]
) -> None:
    """Nor does a match use text of the prompt, which ends in "f" here."""
    answer = ask(edge, counting, "leaf", max_tokens=4, temperature=0, stop=stop)
    assert (answer.text, answer.finish_reason) == ("one two three", "length")
    assert answer.completion_tokens == 4


# --- B22: min_tokens, ignore_eos ------------------------------------------------------------------


def test_b22_ends_where_the_model_says(ending: Served, edge: str) -> None:
    answer = ask(edge, ending, "x", max_tokens=10, temperature=0)
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("a\n", "stop", 3)


def test_b22_no_end_before_min_tokens(ending: Served, edge: str) -> None:
    params = {"min_tokens": 10, "max_tokens": 30, "stop": ["\n"], "temperature": 0}
    answer = ask(edge, ending, "x", **params)
    assert 10 <= answer.completion_tokens < 30
    assert answer.finish_reason == "stop"


def test_b22_ignore_eos_goes_on_to_max_tokens(ending: Served, edge: str) -> None:
    answer = ask(edge, ending, "x", ignore_eos=True, max_tokens=10, temperature=0)
    assert (answer.finish_reason, answer.completion_tokens) == ("length", 10)
    assert answer.text == "a\na\na\na"


def test_b22_ignore_eos_does_not_ignore_stop_token_ids(ending: Served, edge: str) -> None:
    params = {"ignore_eos": True, "stop_token_ids": [NEWLINE], "max_tokens": 10, "temperature": 0}
    answer = ask(edge, ending, "x", **params)
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("a", "stop", 2)
    assert answer.choices[0].stop_reason == NEWLINE


def test_b22_as_many_as_must_be_and_may_be(ending: Served, edge: str) -> None:
    answer = ask(edge, ending, "x", min_tokens=5, max_tokens=5, temperature=0)
    assert answer.completion_tokens == 5


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"min_tokens": 11, "max_tokens": 10}, "min_tokens"),
        ({"min_token": 3}, "min_token"),
        ({"ignore_eos": "yes"}, "ignore_eos"),
    ],
)
def test_b22_refused_by_name(ending: Served, edge: str, params: dict[str, Any], named: str) -> None:
    answer = ask(edge, ending, "x", **params)
    assert answer.status == 400
    assert named in answer.message
    assert edge not in HTTP_EDGES or answer.param == named


# --- B23: spaces ----------------------------------------------------------------------------------

TOKENIZERS = {
    "byte-level": small_models.byte_level_tokenizer,
    "sentencepiece": small_models.sentencepiece_tokenizer,
    "metaspace": small_models.metaspace_tokenizer,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def spelling(
    request: pytest.FixtureRequest, folders: Folders
) -> Iterator[tuple[Tokenizer, Served]]:
    """A tokenizer, and a daemon whose engine says the prompt's tokens again."""
    tokenizer = TOKENIZERS[request.param]()
    text = text_of(tokenizer, folders() / "text")
    engine = {"vocab_size": tokenizer.get_vocab_size(with_added_tokens=True)}
    daemon = Daemon(folders(), text, engine=engine, http="127.0.0.1:0")
    yield tokenizer, Served.of(daemon)
    assert daemon.stop()[0] == 0


def _sequences(tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Outputs that begin with blanks or special tokens, lines with indentation, anything."""
    blank = tokenizer.token_to_id("▁")
    if blank is None:
        blank = tokenizer.token_to_id("Ġ")
    word = tokenizer.encode("hello there", add_special_tokens=False).ids
    code = tokenizer.encode("def main():\n    return {'key'", add_special_tokens=False).ids
    special = tokenizer.token_to_id("</s>")
    for blanks in range(3):
        yield [blank] * blanks + word
        yield [special, *[blank] * blanks, *word, special, *code]
    yield code
    dice = random.Random(23)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    for _ in range(12):
        yield [dice.randrange(size) for _ in range(20)]


@pytest.mark.parametrize("skip", [True, False])
def test_b23_joined_pieces_are_what_the_tokenizer_decodes(
    spelling: tuple[Tokenizer, Served], edge: str, skip: bool
) -> None:
    tokenizer, served = spelling
    for ids in _sequences(tokenizer):
        answer = ask(
            edge,
            served,
            ids,
            max_tokens=len(ids),
            ignore_eos=True,
            skip_special_tokens=skip,
            temperature=0,
        )
        assert answer.text == tokenizer.decode(ids, skip_special_tokens=skip), ids
        assert answer.completion_tokens == len(ids)
