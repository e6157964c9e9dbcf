"""A tokenizer from a GGUF file's metadata.

Source: the GGUF specification, section "Tokenizer". Two vocabularies are known: ``gpt2``
(byte-level BPE, tokens and merges) and ``llama`` (SentencePiece BPE, tokens and scores).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from pagedd.errors import ModelError
from pagedd.models.gguf_meta import Value, metadata, shown
from pagedd.text.pretokenizers import splitting
from pagedd.text.source import TextSource

_PREFIX = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
_SPACE = "▁"
_NAMED_IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_T = TypeVar("_T")


def read_gguf(path: Path) -> TextSource:
    """Build the tokenizer. Errors: ``ModelError`` with one line, ``ModelNotFound``."""
    keys = _Keys(path, metadata(path))
    kind = keys.get("model", str)
    if kind == "gpt2":
        tokenizer, default_bos = _byte_level(keys)
    elif kind == "llama":
        tokenizer, default_bos = _sentencepiece(keys), True
    else:
        raise ModelError(
            f"{path}: the tokenizer kind {kind!r} (tokenizer.ggml.model) is not supported; "
            f"known: gpt2, llama"
        )
    _add_special(tokenizer, keys)
    add_bos = keys.get("add_bos_token", bool)
    ends = (keys.get(key, int) for key in _END_IDS)
    named = {name: keys.token(key) for name, key in _NAMED_IDS.items()}
    return TextSource(
        tokenizer=tokenizer,
        named={name: token for name, token in named.items() if token is not None},
        eos_ids=tuple(end for end in ends if end is not None),
        add_bos=default_bos if add_bos is None else add_bos,
        # Files of models that have no BOS still name an id for it, and say that it is not used.
        chat_bos=add_bos is not False,
        chat_template=keys.chat_template(),
    )


class _Keys:
    """The tokenizer's metadata, with types checked."""

    def __init__(self, path: Path, found: Mapping[str, Value]) -> None:
        self.path = path
        self._found = found
        self.tokens: list[str] = self.list_of("tokens", str)
        self.types: list[int] = self.list_of("token_type", int)
        if not self.tokens:
            raise ModelError(f"{path} holds no tokenizer (tokenizer.ggml.tokens)")
        if self.types and len(self.types) != len(self.tokens):
            raise ModelError(f"{path}: {len(self.types)} token types for {len(self.tokens)} tokens")

    def get(self, key: str, kind: type[_T]) -> _T | None:
        value = self._found.get(_PREFIX + key)
        if value is None:
            return None
        if not isinstance(value, kind):
            raise ModelError(f"{self.path}: {_PREFIX}{key} is no {kind.__name__}")
        return value

    def list_of(self, key: str, kind: type[_T]) -> list[_T]:
        values: list[Any] = self.get(key, list) or []
        if not all(isinstance(value, kind) for value in values):
            raise ModelError(f"{self.path}: {_PREFIX}{key} is no list of {kind.__name__}")
        return values

    def token(self, key: str) -> str | None:
        at = self.get(key, int)
        return self.tokens[at] if at is not None and 0 <= at < len(self.tokens) else None

    def chat_template(self) -> str | None:
        template = self._found.get("tokenizer.chat_template")
        if template is not None and not isinstance(template, str):
            raise ModelError(f"{self.path}: tokenizer.chat_template is no str")
        return template

    def vocab(self) -> dict[str, int]:
        vocab: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            vocab.setdefault(token, index)
        return vocab


def _byte_level(keys: _Keys) -> tuple[Tokenizer, bool]:
    """The tokenizer, and whether this kind puts BOS in front unless told otherwise."""
    split = splitting(keys.get("pre", str) or "default")
    merges = []
    for merge in keys.list_of("merges", str):
        left, blank, right = merge.partition(" ")
        if not blank:
            raise ModelError(f"{keys.path}: the merge {shown(merge)} is not two tokens")
        merges.append((left, right))
    try:
        model = models.BPE(vocab=keys.vocab(), merges=merges, ignore_merges=split.whole_words)
    except Exception as error:  # tokenizers raises Exception itself
        raise ModelError(f"{keys.path}: vocabulary and merges do not fit: {error}") from error
    tokenizer = Tokenizer(model)
    normalizer = split.normalizer()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = split.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, split.bos


def _sentencepiece(keys: _Keys) -> Tokenizer:
    vocab = keys.vocab()
    scores = keys.list_of("scores", float)
    if len(scores) != len(keys.tokens):
        raise ModelError(f"{keys.path}: {len(scores)} scores for {len(keys.tokens)} tokens")
    unknown = [token for token, kind in zip(keys.tokens, keys.types, strict=False) if kind == 2]
    model = models.BPE(
        vocab=vocab,
        merges=_merges(vocab, scores, keys.types),
        unk_token=keys.token("unknown_token_id") or (unknown[0] if unknown else None),
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    prefix = keys.get("add_space_prefix", bool)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    steps: list[decoders.Decoder] = [
        decoders.Replace(_SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if prefix is not False:
        spaces.insert(0, normalizers.Prepend(_SPACE))
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges(
    vocab: Mapping[str, int], scores: Sequence[float], types: Sequence[int]
) -> list[tuple[str, str]]:
    """Every pair of tokens that makes a token, the best score first.

    SentencePiece joins the neighbours whose union scores best; a list of merges in the order of
    the unions' scores does the same. Bytes and special tokens are never joined.
    """
    apart = {index for index, kind in enumerate(types) if kind in (_UNKNOWN, _CONTROL, _BYTE)}
    parts = {token: index for token, index in vocab.items() if index not in apart}
    found: list[tuple[float, int, int, str, str]] = []
    for token, index in parts.items():
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in parts and right in parts:
                found.append((-scores[index], parts[left], parts[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def _add_special(tokenizer: Tokenizer, keys: _Keys) -> None:
    """Control tokens are special; user-defined ones are whole words, shown like others."""
    special, plain = [], []
    for token, kind in zip(keys.tokens, keys.types, strict=False):
        if not token:
            continue
        if kind == _CONTROL or (kind == _UNKNOWN and keys.get("model", str) == "llama"):
            special.append(AddedToken(token, special=True, normalized=False))
        elif kind == _USER_DEFINED:
            plain.append(AddedToken(token, special=False, normalized=False))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(plain)
