"""What is sent back over HTTP, as OpenAI's clients parse it. Source: OpenAI's API reference."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class CachedTokens(Struct, frozen=True):
    cached_tokens: int


class Usage(Struct, frozen=True):
    """Each prompt counted once, whatever n is; the completions of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens

    @classmethod
    def of(cls, prompt: int, completion: int, cached: int) -> Usage:
        """With their sum."""
        return cls(prompt, completion, prompt + completion, CachedTokens(cached))


class TopToken(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenEntry(Struct, frozen=True):
    """One token of a chat's answer, and the most likely ones at its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopToken]


class ChatLogprobs(Struct, frozen=True):
    content: list[TokenEntry]
    refusal: None = None


class CalledFunction(Struct, frozen=True, omit_defaults=True):
    arguments: str
    name: str | UnsetType = UNSET


class CallDelta(Struct, frozen=True, omit_defaults=True):
    """Part of a call: the first has id, type and name, the others more of the arguments."""

    index: int
    function: CalledFunction
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class ChatDelta(Struct, frozen=True, omit_defaults=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChatChunkChoice(Struct, frozen=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class ChatChunk(Struct, frozen=True):
    """One event of a streamed chat."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    object: str = "chat.completion.chunk"
    usage: Usage | UnsetType = UNSET


class Call(Struct, frozen=True):
    id: str
    function: CalledFunction
    type: str = "function"


class ChatAnswer(Struct, frozen=True):
    """The assistant's turn."""

    content: str | None
    tool_calls: list[Call] | UnsetType = UNSET
    role: str = "assistant"
    refusal: None = None


class ChatChoice(Struct, frozen=True):
    index: int
    message: ChatAnswer
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class ChatCompletion(Struct, frozen=True):
    """A whole chat answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: str = "chat.completion"


class TextLogprobs(Struct, frozen=True):
    """Parallel lists, one entry a token; offsets in characters from the text's beginning."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Struct, frozen=True):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class TextCompletion(Struct, frozen=True):
    """A whole completion, or one event of a streamed one."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    object: str = "text_completion"
    usage: Usage | UnsetType = UNSET


class ErrorBody(Struct, frozen=True):
    """``code`` is pagedd's wire code."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(Struct, frozen=True):
    error: ErrorBody


class ModelCard(Struct, frozen=True):
    id: str
    created: int
    max_model_len: int
    object: str = "model"
    owned_by: str = "pagedd"


class ModelList(Struct, frozen=True):
    data: list[ModelCard]
    object: str = "list"


class Tokens(Struct, frozen=True):
    """Of ``POST /tokenize``."""

    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] | UnsetType = UNSET


class Health(Struct, frozen=True, omit_defaults=True):
    status: str
    reason: str | UnsetType = UNSET


class Version(Struct, frozen=True):
    version: str


class Text(Struct, frozen=True):
    """Of ``POST /detokenize``."""

    prompt: str
