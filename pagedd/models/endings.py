"""Which ids end a generation: the union of what config, generation config and tokenizer say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pagedd.models.settings import Settings, read_json


def eos_ids(folder: Path, config: Settings, vocab_size: int) -> frozenset[int]:
    """Ids within the vocabulary at which generation ends.

    A chat model often names its end of turn in only one of the three places, so all count. Errors:
    ``ModelError`` for a value that is no id.
    """
    found = _declared(config)
    generation = folder / "generation_config.json"
    if generation.exists():
        found |= _declared(Settings(read_json(generation), str(generation)))
    found |= _from_tokenizer(folder)
    return frozenset(token for token in found if 0 <= token < vocab_size)


def _declared(settings: Settings) -> set[int]:
    """``eos_token_id``: an id, a list of ids, or nothing."""
    value = settings.get("eos_token_id")
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(token, bool) or not isinstance(token, int) for token in listed):
        raise settings.error("eos_token_id", "an id or a list of ids")
    return set(listed)


def _from_tokenizer(folder: Path) -> set[int]:
    """The id of tokenizer_config.json's ``eos_token``, if it can be found."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return set()
    config = read_json(path)
    token = config.get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        return set()
    decoder = config.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        for index, added in decoder.items():
            if isinstance(added, dict) and added.get("content") == text and index.isdecimal():
                return {int(index)}
    return _from_vocabulary(folder / "tokenizer.json", text)


def _from_vocabulary(path: Path, text: str) -> set[int]:
    if not path.exists():
        return set()
    tokenizer = read_json(path)
    for added in _items(tokenizer.get("added_tokens")):
        if isinstance(added, dict) and added.get("content") == text:
            return _one_id(added.get("id"))
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    return _one_id(vocabulary.get(text)) if isinstance(vocabulary, dict) else set()


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _one_id(value: Any) -> set[int]:
    return {value} if isinstance(value, int) else set()
