"""Small tokenizers of both manners, built once per test run: byte-level and SentencePiece."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from pagedd.errors import PageddError
from pagedd.models.resolve import DEFAULT_MODEL, ModelFiles, resolve
from pagedd.text.prepare import describe, prepare
from pagedd.text.source import TextSource
from pagedd.text.tokenizer import TextModel

CORPUS = (
    "the quick brown fox jumps over the lazy dog",
    "a stop string that begins in one token and ends in another",
    "def main():\n    return {'key': [1, 2, 3]}\n",
    "Grüße aus Köln, déjà vu, naïve café",
    "hello hello world, hello there; the end of the line",
)
SPECIAL = ("<unk>", "<s>", "</s>")
CHATML = (
    "{% for m in messages %}{{ '<s>' + m['role'] + '\n' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


def text_model(tokenizer: Tokenizer, **settings: Any) -> TextModel:
    """A TextModel without any folder; the settings are those of TextSource."""
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    source = TextSource(tokenizer=tokenizer, **({"named": named} | settings))
    return TextModel(tokenizer, describe(source, "small", ""))


@cache
def byte_level_tokenizer() -> Tokenizer:
    """300-odd ids; an emoji is four tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


@cache
def sentencepiece_parts() -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Vocabulary in the order of ids (special tokens, 256 bytes, pieces) and merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=160, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    merges = tuple((left, right) for left, right in trained["merges"])
    joined = {left + right for left, right in merges}
    letters = [token for token in trained["vocab"] if token not in joined]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = [left + right for left, right in merges]
    return (*SPECIAL, *fallback, *letters, *dict.fromkeys(pieces)), merges


@cache
def sentencepiece_tokenizer() -> Tokenizer:
    """As Llama 2's: a blank put in front, byte fallback (emoji are bytes)."""
    tokens, merges = sentencepiece_parts()
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=list(merges),
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    return tokenizer


@cache
def metaspace_tokenizer() -> Tokenizer:
    """SentencePiece's manner with the Metaspace decoder, without byte fallback."""
    tokenizer = Tokenizer.from_str(sentencepiece_tokenizer().to_str())
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def write_gguf(path: Path, kind: str, tokens: list[str], types: list[int], **keys: object) -> Path:
    """A GGUF file that holds a tokenizer and nothing else; keys without ``tokenizer.ggml.``"""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, value in keys.items():
        name = "tokenizer.chat_template" if key == "chat_template" else f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def embedded_model(cache_folder: Path) -> tuple[ModelFiles, TextModel]:
    """The default model's text, if its file is on this machine; else the test is skipped."""
    try:
        files = resolve(DEFAULT_MODEL)
    except PageddError as error:
        pytest.skip(error.message)
    return files, TextModel.load(prepare(files, cache=cache_folder))
