"""Masks of grammars against a plain reading: a token may come if its bytes can go on the text."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex  # type: ignore[import-untyped]

from pagedd.errors import BadRequest
from pagedd.runtime import grammar as grammar_module
from pagedd.runtime.grammar import Grammars
from pagedd.text.tokenizer import TextModel
from tests.runtime.grammars import WIDTH, allowed, grammars, text_dir, written
from tests.tiny.tokenizer import EOS, SPECIAL, VOCAB_SIZE, byte_id

__all__ = ["grammars", "text_dir"]  # fixtures

Goes = Callable[[bytes], bool]


@pytest.fixture(scope="module")
def text(text_dir: Path) -> TextModel:
    return TextModel.load(text_dir)


def finite(*texts: str) -> tuple[Goes, Goes]:
    """(can go on, is complete) of a language with these texts."""
    whole = {text.encode() for text in texts}
    begun = {each[:length] for each in whole for length in range(len(each) + 1)}
    return begun.__contains__, whole.__contains__


def by_pattern(pattern: str) -> tuple[Goes, Goes]:
    compiled = regex.compile(pattern.encode())
    return (
        lambda said: compiled.fullmatch(said, partial=True) is not None,
        lambda said: compiled.fullmatch(said) is not None,
    )


def spelled(schema: Any) -> list[str]:
    """All texts of a schema that has few."""
    if "enum" in schema:
        return [json.dumps(value, ensure_ascii=False) for value in schema["enum"]]
    if schema["type"] == "boolean":
        return ["true", "false"]
    if schema["type"] == "integer":
        return [str(value) for value in range(schema["minimum"], schema["maximum"] + 1)]
    if schema["type"] == "array":
        items = spelled(schema["items"])
        return [
            f"[{', '.join(parts)}]"
            for count in range(schema["maxItems"] + 1)
            for parts in itertools.product(items, repeat=count)
        ]
    members = [
        [f'"{name}": {value}' for value in spelled(value_schema)]
        + ([] if name in schema["required"] else [""])
        for name, value_schema in schema["properties"].items()
    ]
    return [
        "{" + ", ".join(part for part in parts if part) + "}"
        for parts in itertools.product(*members)
    ]


SCHEMA = {
    "type": "object",
    "properties": {
        "the": {"enum": ["then", "théorie", None, 'q"']},
        "in": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "on": {"type": "integer", "minimum": 7, "maximum": 23},
    },
    "required": ["the"],
    "additionalProperties": False,
}
CHOICES = ["the", "then", "theé\n", 'a "quoted" \\', "<|eos|>", "😀"]
LANGUAGES = {
    "choice": (written(guided_choice=CHOICES), finite(*CHOICES)),
    "regex": (
        written(guided_regex="(the|[0-9]{2,4}/)+(re?|x{0,3})"),
        by_pattern("(the|[0-9]{2,4}/)+(re?|x{0,3})"),
    ),
    "json": (written(guided_json=SCHEMA), finite(*spelled(SCHEMA))),
    "lark": (
        written(guided_grammar='start: "(" start ")" | "he" | "the"'),
        finite(*("(" * n + word + ")" * n for n in range(9) for word in ("he", "the"))),
    ),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_token_may_come_if_its_bytes_can_go_on(
    grammars: Grammars, text: TextModel, name: str
) -> None:
    grammar, (goes, ends) = LANGUAGES[name]
    spelling = {id: text.token_bytes(id) for id in range(VOCAB_SIZE) if id not in SPECIAL.values()}
    grammars.build(grammar)
    for seed in range(12):
        rng, said, drawn = random.Random(seed), b"", list[int]()
        guide = grammars.guide(grammar, [])
        for _ in range(7 if name == "lark" else 40):
            expected = {id for id, piece in spelling.items() if goes(said + piece)}
            expected |= {EOS} if ends(said) else set()
            again = grammars.guide(grammar, drawn)  # as after a preemption
            assert allowed(grammars, guide, again) == [expected, expected], said
            assert expected, f"{said!r} is a dead end"
            token = rng.choice(sorted(expected))
            guide.advance(token)
            drawn.append(token)
            if token == EOS:
                break
            said += spelling[token]


def test_only_the_end_may_follow_a_complete_answer(grammars: Grammars) -> None:
    grammar = written(guided_choice=["h"])
    guide = grammars.guide(grammar, [])
    assert allowed(grammars, guide) == [{byte_id(ord("h"))}]
    guide.advance(byte_id(ord("h")))
    assert allowed(grammars, guide) == [{EOS}]


def test_after_a_forbidden_token_nothing_is_allowed(grammars: Grammars) -> None:
    """And nothing of that concerns another choice."""
    grammar = written(guided_choice=["h"])
    wrong, right = grammars.guide(grammar, []), grammars.guide(grammar, [])
    wrong.advance(byte_id(ord("x")))
    assert allowed(grammars, wrong, right) == [set(), {byte_id(ord("h"))}]


def test_several_threads_fill_the_same_masks(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    guides = [grammars.guide(grammar, []) for grammar, _ in LANGUAGES.values()] * 2
    guides.append(grammars.guide(written(guided_choice=["h"]), [byte_id(ord("x"))]))
    alone = [grammars.fill([guide]) for guide in guides]
    monkeypatch.setattr(grammar_module, "ENOUGH_CORES", 1)
    assert grammars._executor is not None
    together = grammars.fill(guides[:4]), grammars.fill(guides[4:])
    assert np.array_equal(np.concatenate(together), np.concatenate(alone))
    assert not alone[-1].any()


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ("start: start", "no answer is allowed"),
        ("start: nothing", "unknown name"),
        ("start: <|nobody|>", "unknown special token"),
        ("start: /(/", "unclosed group"),
    ],
)
def test_a_grammar_that_cannot_be_used(grammars: Grammars, grammar: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        grammars.build(grammar)
    assert not grammars.is_built(grammar)


def test_no_grammar_without_an_end_token(text_dir: Path) -> None:
    with pytest.raises(BadRequest, match="no end token"):
        Grammars(text_dir, vocab_size=WIDTH, eos_ids=()).build('start: "a"')


def test_what_was_built_last_is_kept(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_module, "KEPT", 3)
    built = [written(guided_choice=[str(n)]) for n in range(5)]
    for grammar in built:
        grammars.build(grammar)
        grammars.guide(built[0], [])
    assert [grammars.is_built(grammar) for grammar in built] == [True, False, False, True, True]
    assert allowed(grammars, grammars.guide(built[1], [])) == [{byte_id(ord("1"))}]


def test_two_threads_make_one_tokenizer(grammars: Grammars) -> None:
    texts = [written(guided_choice=[str(n)]) for n in range(4)]
    threads = [threading.Thread(target=grammars.build, args=(each,)) for each in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(grammars.is_built(each) for each in texts)


# Its answers need a state for each of the last 18 letters that may have been an "a".
WIDE = written(guided_regex="[ab]*a[ab]{18}b")


def follow(grammars: Grammars, seed: int, length: int = 200) -> bool:
    """Whether an answer by lot was followed to its end."""
    rng, guide = random.Random(seed), grammars.guide(WIDE, [])
    for _ in range(length):
        if not allowed(grammars, guide)[0]:
            return False
        guide.advance(byte_id(ord(rng.choice("ab"))))
    return True


def test_what_all_answers_together_cannot_have_each_of_them_can(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States are counted for a grammar as long as it is kept."""
    monkeypatch.setattr(grammar_module, "MAX_STATES", 3000)
    grammars.build(WIDE)
    built = grammars._find(WIDE)
    assert all(follow(grammars, seed) for seed in range(40))
    assert grammars._find(WIDE) is not built, "the limit was never met"


def test_who_fails_says_why_and_nobody_else_fails(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "MAX_STATES", 400)
    grammars.build(WIDE)
    other = grammars.guide(WIDE, [], handle=8)
    rng, guide = random.Random(1), grammars.guide(WIDE, [], handle=7)
    for _ in range(3000):
        if not allowed(grammars, guide)[0]:
            break
        guide.advance(byte_id(ord(rng.choice("ab"))))
    assert "too many states" in str(grammars.fault_of(7))
    assert grammars.fault_of(7) is None, "it is told once"
    assert allowed(grammars, other) == [{byte_id(ord("a")), byte_id(ord("b"))}]
    assert grammars.fault_of(8) is None
