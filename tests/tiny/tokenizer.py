"""A byte-level BPE tokenizer of 300 ids: 256 bytes, 40 merges, 4 special tokens.

ids 0 … 255 are the bytes in the order of the byte-level alphabet (see :func:`byte_id`), 256 … 295
the merges, then BOS, EOS, PAD and IM_END. Extra pieces follow from 300 on. No merge touches a byte
above 127, so an emoji is four tokens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

_PAIRS = "thheineranreonatenndtiesorteofedisitalarsttontngsehaasouiolevecomedehiriroicneea"
MERGES = tuple(_PAIRS[at : at + 2] for at in range(0, len(_PAIRS), 2))
BOS, EOS, PAD, IM_END = 296, 297, 298, 299
SPECIAL = {"<|bos|>": BOS, "<|eos|>": EOS, "<|pad|>": PAD, "<|im_end|>": IM_END}
VOCAB_SIZE = 300
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}] "
    "{{ message['content'] }}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)


def _printable_bytes() -> dict[int, str]:
    """Byte → the character that byte-level BPE writes for it (the GPT-2 table)."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in kept}
    for shift, byte in enumerate(byte for byte in range(256) if byte not in table):
        table[byte] = chr(256 + shift)
    return table


def spelled(piece: str | bytes) -> str:
    """The piece as a byte-level vocabulary writes it: " a" → "Ġa"."""
    table = _printable_bytes()
    raw = piece.encode() if isinstance(piece, str) else piece
    return "".join(table[byte] for byte in raw)


def byte_id(byte: int) -> int:
    """The id of a single byte."""
    return sorted(_printable_bytes().values()).index(_printable_bytes()[byte])


def save_tokenizer(
    folder: Path,
    *,
    pieces: Sequence[str | bytes] = (),
    add_bos: bool = False,
    chat_template: str | None = CHAT_TEMPLATE,
    eos: str = "<|eos|>",
) -> None:
    """Write tokenizer.json and tokenizer_config.json; ``pieces`` become the ids 300, 301, …

    Pieces are only decoded: no text is ever encoded to them. ``add_bos``: encoding puts BOS first.
    """
    tokens = [*sorted(_printable_bytes().values()), *MERGES, *SPECIAL, *map(spelled, pieces)]
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ValueError("a piece is in the vocabulary already: name it by its id")
    merges = [(merge[0], merge[1]) for merge in MERGES]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|bos|> $A", pair="<|bos|> $A $B", special_tokens=[("<|bos|>", BOS)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": eos,
        "pad_token": "<|pad|>",
        "add_bos_token": add_bos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 20,
    }
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
