"""Log-probabilities in the two forms that OpenAI's endpoints have."""

from __future__ import annotations

from collections.abc import Sequence

from pagedd.protocol import Logprob
from pagedd.server.http.answers import ChatLogprobs, TextLogprobs, TokenEntry, TopToken
from pagedd.text.tokenizer import TextModel


def chat_logprobs(entries: Sequence[Logprob], text: TextModel) -> ChatLogprobs:
    """One entry a token, with the most likely ones at its place."""
    return ChatLogprobs(
        [
            TokenEntry(
                entry.token,
                entry.logprob,
                list(entry.bytes),
                [
                    TopToken(top.token, top.logprob, list(text.token_bytes(top.id)))
                    for top in entry.top
                ],
            )
            for entry in entries
        ]
    )


def text_logprobs(entries: Sequence[Logprob], offset: int) -> TextLogprobs:
    """Parallel lists; ``offset``: characters before the first of these tokens.

    Alternatives that are spelled alike, parts of characters, share a key: the likeliest one counts.
    """
    offsets = []
    for entry in entries:
        offsets.append(offset)
        offset += len(entry.token)
    return TextLogprobs(
        tokens=[entry.token for entry in entries],
        token_logprobs=[entry.logprob for entry in entries],
        top_logprobs=[{top.token: top.logprob for top in reversed(entry.top)} for entry in entries],
        text_offset=offsets,
    )
