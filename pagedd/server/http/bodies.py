"""What clients send over HTTP: OpenAI's fields, and pagedd's own under the names of the protocol.

Unknown fields are refused by name, and so is every value that could not be honoured. Source:
OpenAI's API reference, "Chat" and "Completions".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct

from pagedd.errors import BadRequest
from pagedd.protocol import (
    INT32_MAX,
    INT64_MAX,
    MAX_STOP_STRINGS,
    MAX_TIMEOUT_S,
    MAX_TOOLS,
    Generate,
    GuidedText,
    Params,
    Priority,
    ResponseFormat,
    StopString,
    TokenId,
    Tool,
)

MAX_PROMPTS = 1024
Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Ids = Annotated[list[TokenId], Meta(max_length=1024)]


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Usage in a last chunk, or in each."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Literal[False] | None = None  # nothing is padded here


# What would ask for nothing, whatever the type: a list or an object without members.
NoList = Annotated[list[Any], Meta(max_length=0)]
NoObject = Annotated[dict[str, Any], Meta(max_length=0)]


class Sampling(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What both endpoints take; ``None`` is as if it were not there."""

    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    logit_bias: dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None  # whose share it is (--fair-share)
    # pagedd's own
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    min_tokens: Count | None = None
    stop_token_ids: Ids | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | None = None
    guided_regex: GuidedText | None = None
    guided_choice: Annotated[list[GuidedText], Meta(min_length=1, max_length=1024)] | None = None
    guided_grammar: GuidedText | None = None
    priority: Priority | None = None
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None

    def frame(self, id: str, params: Params, **content: Any) -> Generate:
        """The frame that asks the same over a websocket; ``content`` is what goes on."""
        return Generate(
            id=id,
            params=params,
            priority=self.priority or 0,
            cache_salt=self.cache_salt,
            user=self.user,
            timeout_s=self.timeout_s,
            stream=bool(self.stream),
            **content,
        )

    def params(self, max_tokens: int | None, logprobs: int | None) -> Params:
        """The sampling parameters; what was not given keeps its default."""
        given = {
            name: value
            for name in Params.__struct_fields__
            if (value := getattr(self, name, None)) is not None and name != "logprobs"
        }
        return Params(**given | {"max_tokens": max_tokens, "logprobs": logprobs})


class TextPart(Struct, frozen=True, forbid_unknown_fields=True):
    """One part of a message's content; no other kind can be shown to the model."""

    text: str
    type: Literal["text"]


class CalledFunction(Struct, frozen=True, forbid_unknown_fields=True):
    """``arguments`` is JSON in a string, as the model wrote it."""

    name: str
    arguments: str


class CallInHistory(Struct, frozen=True, forbid_unknown_fields=True):
    """A call that the assistant made in an earlier turn."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class ChatMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn. The model's template decides which roles it takes, in which order."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[CallInHistory] | None = None
    tool_call_id: str | None = None
    # as clients send back what they got
    refusal: None = None
    annotations: NoList | None = None
    audio: None = None
    function_call: None = None


class NamedFunction(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class NamedTool(Struct, frozen=True, forbid_unknown_fields=True):
    """Call this function and no other."""

    function: NamedFunction
    type: Literal["function"] = "function"


class ChatBody(Sampling, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    # OpenAI's that are not carried out: what they do when they are not given may be asked for
    store: Literal[False] | None = None
    metadata: NoObject | None = None
    service_tier: Literal["auto", "default"] | None = None
    modalities: list[str] | None = None
    verbosity: Literal["medium"] | None = None
    functions: NoList | None = None
    function_call: Literal["none"] | None = None
    audio: None = None
    prediction: None = None
    reasoning_effort: None = None
    web_search_options: None = None
    prompt_cache_key: None = None
    prompt_cache_retention: None = None
    safety_identifier: None = None

    def chat_params(self) -> Params:
        """Raises BadRequest where fields contradict each other."""
        longest = self.max_completion_tokens or self.max_tokens
        if self.max_tokens and self.max_completion_tokens not in (None, self.max_tokens):
            raise BadRequest("max_completion_tokens: contradicts max_tokens, which is its old name")
        if self.top_logprobs and not self.logprobs:
            raise BadRequest("top_logprobs: needs logprobs to be true")
        if self.modalities not in (None, ["text"]):
            raise BadRequest("modalities: only text can be asked for")
        return self.params(longest, (self.top_logprobs or 0) if self.logprobs else None)


class CompletionBody(Sampling, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``POST /v1/completions``. ``prompt``: a text, texts, token ids, or lists of them."""

    prompt: str | list[str | TokenId | list[TokenId]]
    max_tokens: Count | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    suffix: Literal[""] | None = None  # no model here fills in the middle

    def prompts(self) -> list[str | list[int]]:
        """Each a text or token ids. Raises BadRequest for a list of several kinds."""
        given = self.prompt
        if isinstance(given, str):
            return [given]
        if not given:
            raise BadRequest("prompt: must not be empty")
        if all(isinstance(each, int) for each in given):
            return [[each for each in given if isinstance(each, int)]]
        if len(given) > MAX_PROMPTS:
            raise BadRequest(f"prompt: {len(given)} prompts, the limit is {MAX_PROMPTS}")
        texts = [each for each in given if isinstance(each, str)]
        lists = [each for each in given if isinstance(each, list)]
        if len(texts) not in (0, len(given)) or len(lists) not in (0, len(given)):
            raise BadRequest("prompt: a list holds texts, or token ids, or lists of token ids")
        return [*texts, *lists]


class TokenizeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /tokenize``: a text as a completion's prompt, or messages as a chat's."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /detokenize``."""

    tokens: list[TokenId]
    model: str | None = None


def unset(value: Any) -> Any:
    """``None`` as the protocol's structs say it."""
    return UNSET if value is None else value
