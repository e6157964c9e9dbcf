"""Texts and calls of tools that grammars force, whatever tokens a tokenizer has for them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import regex  # type: ignore[import-untyped]
from tokenizers import AddedToken, Tokenizer

from pagedd.protocol import FunctionTool, Tool
from pagedd.runtime.grammar import Grammars
from pagedd.text.info import INFO_FILE, TOKENIZER_FILE
from pagedd.text.tokenizer import TextModel
from pagedd.text.tool_calls import Argued, Called, ToolCalls
from pagedd.text.tool_grammar import tool_grammar
from tests.runtime.grammars import written
from tests.server.harness import make_text_dir
from tests.text import small_models
from tests.tiny.tokenizer import EOS, VOCAB_SIZE, byte_id


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
