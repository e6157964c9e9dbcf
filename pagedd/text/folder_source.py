"""A tokenizer from the files of a model's folder.

``tokenizer.json`` is used as it is, without transformers; older files go through transformers'
converter, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pagedd.errors import ModelError
from pagedd.models.settings import read_json
from pagedd.text.source import TextSource

# Everything that can change the result; part of the cache key.
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "config.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
    "merges.txt",
)


def read_folder(folder: Path) -> TextSource:
    """Build the tokenizer. Errors: ``ModelError`` with one line."""
    config = _read_json(folder / "tokenizer_config.json")
    special = {**_read_json(folder / "special_tokens_map.json"), **config}
    tokenizer = _tokenizer(folder)
    named = {
        name: text
        for name, value in special.items()
        if name.endswith("_token") and (text := _token_text(value)) is not None
    }
    ends = _ids(_read_json(folder / "generation_config.json").get("eos_token_id"))
    ends += _ids(_read_json(folder / "config.json").get("eos_token_id"))
    eos = tokenizer.token_to_id(named["eos_token"]) if "eos_token" in named else None
    if eos is not None:
        ends.insert(0, eos)
    add_bos = config.get("add_bos_token")
    return TextSource(
        tokenizer=tokenizer,
        named=named,
        eos_ids=tuple(ends),
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        chat_template=_chat_template(folder, config),
    )


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.exists():
        return _converted(folder)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises Exception itself
        raise ModelError(f"{path} cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _converted(folder: Path) -> Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ModelError(
            f"{folder} has no tokenizer.json, and without transformers none can be made of what it "
            f"has: {error}"
        ) from error
    try:
        converted = AutoTokenizer.from_pretrained(
            folder, use_fast=True, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers raises many kinds for files it cannot use
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"{folder} holds no tokenizer that can be used: {reason}") from error
    backend = getattr(converted, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelError(f"{folder}: {type(converted).__name__} has no fast form")
    return backend


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """In this order: chat_template.jinja, chat_template.json, tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
    template = _read_json(folder / "chat_template.json").get("chat_template")
    if template is None:
        template = config.get("chat_template")
    if isinstance(template, list):  # several with names; the plain one is "default"
        by_name = {
            entry.get("name"): entry.get("template")
            for entry in template
            if isinstance(entry, dict)
        }
        template = by_name.get("default")
    if template is not None and not isinstance(template, str):
        raise ModelError(f"{folder}: the chat template is no text")
    return template


def _token_text(value: object) -> str | None:
    """A token as these files write it: a string, or an object with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _ids(value: object) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]


def _read_json(path: Path) -> dict[str, Any]:
    """The object in the file; empty if there is no such file. Errors: ``ModelError``."""
    return read_json(path) if path.exists() else {}
