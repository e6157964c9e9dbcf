"""What clients send. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

# Patterns of names end with $(?!\n): in Python $ alone leaves room for the end of a line.
# Bounds of the engine's integers: the seed is a 64-bit key, everything else fits 32 bits.
INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
INT64_MAX = 2**63 - 1
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
MAX_TOOLS = 128
MAX_GUIDED = 128 * 1024  # characters of a regular expression, a choice or a grammar
MAX_TIMEOUT_S = 86400
MAX_HISTORY = 4096  # events that a daemon remembers

Id = Annotated[str, Meta(min_length=1, max_length=128)]
TokenId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Priority = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
GuidedText = Annotated[str, Meta(min_length=1, max_length=MAX_GUIDED)]
StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]


class JsonSchema(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a JSON answer must look like; it is always kept to, whatever ``strict`` says."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$(?!\n)")]
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """OpenAI's way to ask for an answer of a form; ``json_schema`` with the type of that name."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Params(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sampling parameters; names and meaning as in vLLM's SamplingParams."""

    max_tokens: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    # so that no product of a logit leaves float32
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    seed: Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=1024)] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    logit_bias: dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    n: Annotated[int, Meta(ge=1, le=INT32_MAX)] = 1
    skip_special_tokens: bool = True
    # the form of the answer, at most one of them
    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | None = None
    guided_regex: GuidedText | None = None
    guided_choice: Annotated[list[GuidedText], Meta(min_length=1, max_length=1024)] | None = None
    guided_grammar: GuidedText | None = None  # Lark, as llguidance reads it


class FunctionCall(Struct, frozen=True, forbid_unknown_fields=True):
    """What the assistant called: a name, and its arguments as an object."""

    name: str
    arguments: dict[str, Any]


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call in a message of the assistant."""

    function: FunctionCall
    id: str | UnsetType = UNSET
    type: Literal["function"] = "function"


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a chat. The template decides what it makes of the fields besides ``role``."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | None = None
    name: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET


class FunctionTool(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call; ``parameters`` is the JSON schema of its arguments."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$(?!\n)")]
    description: str | UnsetType = UNSET
    parameters: dict[str, Any] | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET


class Tool(Struct, frozen=True, forbid_unknown_fields=True):
    """One of the tools of a chat."""

    function: FunctionTool
    type: Literal["function"] = "function"


class Generate(Struct, tag="generate", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for text: exactly one of ``prompt``, ``prompt_tokens`` and ``messages``."""

    id: Id
    prompt: str | None = None
    prompt_tokens: list[TokenId] | None = None
    messages: list[Message] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    params: Params = Params()
    priority: Priority = 0
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None  # whose share it is, with --fair-share
    stream: bool = True
    # from its arrival to its end, seconds
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None


class Cancel(Struct, tag="cancel", frozen=True, forbid_unknown_fields=True):
    """End a request; it answers with ``done`` whose reason is ``cancelled``."""

    id: Id


class Explain(Struct, tag="explain", frozen=True, forbid_unknown_fields=True):
    """Ask why a request is where it is."""

    id: Id


class Reprioritize(Struct, tag="reprioritize", frozen=True, forbid_unknown_fields=True):
    """Give a waiting or running request another priority."""

    id: Id
    priority: Priority


class Subscribe(Struct, tag="subscribe", frozen=True, forbid_unknown_fields=True):
    """Start a feed."""

    topic: Literal["state", "events"]
    hz: Annotated[float, Meta(ge=0.1, le=30)] = 10.0
    # events: so many of the last ones come first
    history: Annotated[int, Meta(ge=0, le=MAX_HISTORY)] = 0


class Unsubscribe(Struct, tag="unsubscribe", frozen=True, forbid_unknown_fields=True):
    """End a feed."""

    topic: Literal["state", "events"]


class StatusRequest(Struct, tag="status", frozen=True, forbid_unknown_fields=True):
    """Ask for the daemon's status; ``ref`` is echoed."""

    ref: Annotated[str, Meta(max_length=128)] | None = None


ClientFrame = Generate | Cancel | Explain | Reprioritize | Subscribe | Unsubscribe | StatusRequest
