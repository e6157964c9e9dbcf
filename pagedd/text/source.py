"""What a model's own files say about its text, before it is measured and stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class TextSource:
    """A tokenizer and the settings beside it.

    ``add_bos``: None where only the tokenizer's post-processor can tell. ``chat_bos``: False
    where a BOS id is named but must not be put in front of a chat. ``named``: special tokens by
    the names that templates use; ``eos_ids`` may hold ids outside of the vocabulary.
    """

    tokenizer: Tokenizer
    named: dict[str, str] = field(default_factory=dict)
    eos_ids: tuple[int, ...] = ()
    add_bos: bool | None = None
    chat_bos: bool = True
    chat_template: str | None = None
