"""Masks of grammars against a plain reading: a token may come if its bytes can go on the text."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import regex  # type: ignore[import-untyped]
import torch
from tokenizers import AddedToken, Tokenizer

from pagedd.core.plan import Join
from pagedd.core.request import SamplingParams
from pagedd.errors import BadRequest
from pagedd.protocol import FunctionTool, Params, Tool
from pagedd.runtime import grammar as grammar_module
from pagedd.runtime.grammar import Grammars, Guide
from pagedd.runtime.masking import _expanded, masked_logits
from pagedd.runtime.sampler import Sampler, TorchDraws
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.server.structure import grammar_of
from pagedd.text.info import INFO_FILE, TOKENIZER_FILE
from pagedd.text.tokenizer import TextModel
from pagedd.text.tool_calls import Argued, Called, ToolCalls
from pagedd.text.tool_grammar import tool_grammar
from tests.server.harness import make_text_dir
from tests.text import small_models
from tests.tiny.tokenizer import EOS, SPECIAL, VOCAB_SIZE, byte_id

WIDTH = VOCAB_SIZE + 20  # logits are often wider than the vocabulary
Goes = Callable[[bytes], bool]


@pytest.fixture(scope="module")
def text_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_dir(tmp_path_factory.mktemp("text") / "tiny")


@pytest.fixture(scope="module")
def text(text_dir: Path) -> TextModel:
    return TextModel.load(text_dir)


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


def finite(*texts: str) -> tuple[Goes, Goes]:
    """(can go on, is complete) of a language with these texts."""
    whole = [text.encode() for text in texts]
    return lambda said: any(each.startswith(said) for each in whole), lambda said: said in whole


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


def test_the_sampler_draws_what_the_grammar_allows(grammars: Grammars) -> None:
    """Beside choices without one; log-probabilities stay those of the model."""
    rows = SamplingRows(
        max_num_seqs=4, vocab_size=WIDTH, eos_ids=frozenset({EOS}), seed=1, grammars=grammars
    )
    sampler = Sampler(rows, TorchDraws())
    ways: list[dict[str, Any]] = [{"temperature": 0.0}, {"seed": 3}, {"seed": 4, "top_p": 0.5}]
    for slot, way in enumerate(ways):
        params = SamplingParams(
            max_tokens=9, grammar=written(guided_choice=["xyz"]), logprobs=0, **way
        )
        sampler.join(Join(slot, slot, 0, (1, 2), 2, params, ()))
    free = SamplingParams(max_tokens=9, temperature=0.0)
    sampler.join(Join(3, 3, 0, (1, 2), 2, free, ()))
    logits = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(5))
    kept = logits.clone()
    for at, letter in enumerate("xyz"):
        drawn = sampler.sample(logits, range(4), np.full(4, 2 + at))
        assert [each.token for each in drawn[:3]] == [byte_id(ord(letter))] * 3
        assert drawn[3].token == int(logits[3].argmax())
        raw = logits[0].log_softmax(0)[drawn[0].token]
        assert drawn[0].logprobs is not None
        assert drawn[0].logprobs.logprob == pytest.approx(float(raw))
        assert torch.equal(logits, kept)
    drawn = sampler.sample(logits, range(4), np.full(4, 5))
    assert [each.token for each in drawn[:3]] == [EOS] * 3
    sampler.leave(0)
    assert 0 not in rows.guides


def test_a_row_without_valid_logits_draws_nothing(grammars: Grammars) -> None:
    rows = SamplingRows(
        max_num_seqs=3, vocab_size=WIDTH, eos_ids=frozenset({EOS}), seed=1, grammars=grammars
    )
    sampler = Sampler(rows, TorchDraws())
    for slot in range(3):
        params = SamplingParams(max_tokens=9, grammar=written(guided_choice=["x"]), seed=slot)
        sampler.join(Join(slot, slot, 0, (1,), 1, params, ()))
    logits = torch.zeros(3, WIDTH)
    logits[0, byte_id(ord("q"))] = torch.nan  # where the grammar forbids it
    logits[1, byte_id(ord("x"))] = -torch.inf  # all that it allows
    drawn = sampler.sample(logits, range(3), np.ones(3, dtype=np.int64))
    assert [each.token for each in drawn] == [-1, -1, byte_id(ord("x"))]


def test_masks_expand_on_a_device() -> None:
    masks = np.random.default_rng(1).integers(-(2**31), 2**31, (5, 11)).astype(np.int32)
    bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")[:, :340]
    assert torch.equal(_expanded(masks, torch.zeros(5, 340)), torch.from_numpy(bits == 1))


def test_rows_are_masked_where_they_are(grammars: Grammars) -> None:
    """``at`` says where, in a padded step."""
    rows = SamplingRows(
        max_num_seqs=3, vocab_size=WIDTH, eos_ids=frozenset({EOS}), seed=1, grammars=grammars
    )
    params = SamplingParams(max_tokens=9, grammar=written(guided_choice=["x"]))
    rows.join(Join(1, 1, 0, (1,), 1, params, ()))
    masked = masked_logits(rows, torch.zeros(4, WIDTH), np.array([0, 1]), np.array([3, 2]))
    assert masked.isfinite().sum(dim=1).tolist() == [WIDTH, WIDTH, 1, WIDTH]


@pytest.mark.parametrize(
    "make",
    [
        small_models.byte_level_tokenizer,
        small_models.sentencepiece_tokenizer,
        small_models.metaspace_tokenizer,
    ],
)
def test_the_text_has_its_form_however_tokens_are_spelled(
    tmp_path: Path, make: Callable[[], Tokenizer]
) -> None:
    """To the blank that some tokenizers put before every text, and take away again."""
    tokenizer = make()
    info = small_models.text_model(tokenizer).info
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    (tmp_path / INFO_FILE).write_bytes(msgspec.json.encode(info))
    text, end = TextModel.load(tmp_path), min(info.special_ids)
    grammars = Grammars(tmp_path, vocab_size=info.vocab_size, eos_ids={end})
    pattern = "( a|  b|c)( [a-eő]{1,3}){2,4}"
    grammar, firsts = written(guided_regex=pattern), set()
    for seed in range(40):
        rng, guide = random.Random(seed), grammars.guide(grammar, [])
        detokenizer, said = text.detokenizer(skip_special=True, whole=True), ""
        token = -1
        while token != end:
            bits = np.unpackbits(grammars.fill([guide]).view(np.uint8), bitorder="little")
            token = rng.choice(np.flatnonzero(bits[: info.vocab_size]).tolist())
            guide.advance(token)
            said += detokenizer.push(token)
        said += detokenizer.flush()
        assert regex.fullmatch(pattern, said), said
        firsts.add(said[0])
    assert firsts == {" ", "c"}


WEATHER = FunctionTool(
    "weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"enum": [1, 2, 3]}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
TOOLS = [Tool(WEATHER), Tool(FunctionTool("stop"))]


def with_marks(folder: Path, *, special: bool | None) -> tuple[Path, int]:
    """The tiny tokenizer, with tokens for the marks of a call, or without; and its size."""
    path = make_text_dir(folder)
    if special is None:
        return path, VOCAB_SIZE
    tokenizer = Tokenizer.from_file(str(path / TOKENIZER_FILE))
    marks = [AddedToken(mark, special=special) for mark in ("<tool_call>", "</tool_call>")]
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(marks)
    tokenizer.save(str(path / TOKENIZER_FILE))
    info = json.loads((path / INFO_FILE).read_bytes())
    info["vocab_size"] += 2
    info["special_ids"] += [VOCAB_SIZE, VOCAB_SIZE + 1] if special else []
    (path / INFO_FILE).write_text(json.dumps(info))
    return path, VOCAB_SIZE + 2


@pytest.mark.parametrize("special", [None, False, True], ids=["none", "plain", "special"])
@pytest.mark.parametrize(
    ("only", "parallel"), [(None, True), (None, False), ("weather", True)], ids=str
)
def test_calls_are_forced_whatever_tokens_the_marks_have(
    tmp_path: Path, special: bool | None, only: str | None, parallel: bool
) -> None:
    path, size = with_marks(tmp_path / "text", special=special)
    text, grammars = TextModel.load(path), Grammars(path, vocab_size=size, eos_ids={EOS})
    grammar = written(guided_grammar=tool_grammar(TOOLS, only, parallel=parallel))
    grammars.build(grammar)
    counts = set()
    for seed in range(25):
        rng, guide, tokens = random.Random(seed), grammars.guide(grammar, []), list[int]()
        while not tokens or tokens[-1] != EOS:
            bits = np.unpackbits(grammars.fill([guide]).view(np.uint8), bitorder="little")
            tokens.append(rng.choice(np.flatnonzero(bits[:size]).tolist()))
            assert tokens[-1] == EOS or tokens[-1] not in text.special_ids
            guide.advance(tokens[-1])
        said = text.decode(tokens, skip_special=True)
        reader = ToolCalls()
        spoken = [*reader.push(said), *reader.finish()]
        assert all(isinstance(each, Called | Argued) for each in spoken), said
        names = [each.name for each in spoken if isinstance(each, Called)]
        assert set(names) <= ({"weather", "stop"} if only is None else {only})
        counts.add(len(names))
        assert reader.count == len(names)
        for call in said.split("\n</tool_call>")[:-1]:
            arguments = json.loads(call.split("<tool_call>\n")[1])["arguments"]
            assert set(arguments) <= {"city", "days"}
    assert counts == {1} if only or not parallel else len(counts) > 1


def test_the_token_of_a_mark_may_be_drawn(tmp_path: Path) -> None:
    path, size = with_marks(tmp_path / "text", special=False)
    grammars = Grammars(path, vocab_size=size, eos_ids={EOS})
    grammar = written(guided_grammar=tool_grammar(TOOLS, None))
    bits = np.unpackbits(
        grammars.fill([grammars.guide(grammar, [])]).view(np.uint8), bitorder="little"
    )
    assert set(np.flatnonzero(bits).tolist()) == {VOCAB_SIZE, byte_id(ord("<"))}
