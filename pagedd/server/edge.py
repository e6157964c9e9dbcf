"""A ``generate`` frame → a core Request: nothing that is out of range gets past this file.

Types and fixed ranges are the structs' (``protocol.py``); here are the limits that only a running
engine has: its vocabulary, its context length, its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagedd.core.request import SamplingParams
from pagedd.engine.messages import Ready
from pagedd.errors import BadRequest, PromptTooLong
from pagedd.protocol import Generate, Params, Tool
from pagedd.server.structure import check_combination

# So small a temperature divides logits into infinities; the distribution is one-hot anyway.
GREEDY_UP_TO = 1e-5


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Tokens and counts that this engine allows."""

    vocab_size: int
    max_model_len: int
    max_num_seqs: int
    eos_ids: tuple[int, ...] = ()

    @property
    def max_prompt_tokens(self) -> int:
        """Room for one token to generate must be left."""
        return self.max_model_len - 1

    @classmethod
    def of(cls, ready: Ready) -> EdgeLimits:
        """The limits of an engine that is ready."""
        return cls(ready.vocab_size, ready.max_model_len, ready.max_num_seqs, ready.eos_ids)


def check_frame(frame: Generate, limits: EdgeLimits) -> None:
    """All that can be said before the prompt is tokens. Raises BadRequest."""
    given = [
        name for name in ("prompt", "prompt_tokens", "messages") if getattr(frame, name) is not None
    ]
    if len(given) != 1:
        named = " and ".join(given) if given else "none"
        raise BadRequest(f"give exactly one of prompt, prompt_tokens and messages; got {named}")
    if not getattr(frame, given[0]):
        raise BadRequest(f"{given[0]}: must not be empty")
    for at, message in enumerate(frame.messages or ()):
        if message.content is None and not message.tool_calls:
            raise BadRequest(f"messages[{at}].content: expected a text, got none")
    if frame.tools is not None and frame.messages is None:
        raise BadRequest("tools: only with messages")
    check_tools(frame.tools or ())
    if frame.prompt_tokens is not None:
        check_prompt_length(len(frame.prompt_tokens), limits)  # before each of them is looked at
        check_ids("prompt_tokens", frame.prompt_tokens, limits.vocab_size)
    _check_params(frame.params, limits)


def check_prompt_length(length: int, limits: EdgeLimits) -> None:
    """Raises BadRequest for no tokens, PromptTooLong when not even one token could follow."""
    if length == 0:
        raise BadRequest("prompt: the text makes no tokens")
    if length > limits.max_prompt_tokens:
        raise PromptTooLong(
            f"the prompt has {length} tokens; with one token to generate the limit is "
            f"{limits.max_model_len} tokens (max_model_len)",
            detail={"prompt_tokens": length, "max_model_len": limits.max_model_len},
        )


def core_params(
    params: Params, prompt_length: int, limits: EdgeLimits, grammar: str | None
) -> SamplingParams:
    """The engine's parameters for a prompt of ``prompt_length`` tokens, already checked.

    ``grammar``: of the answer's form, as ``check_grammar`` gave it: to write it takes long.

    ``max_tokens`` is cut to what the model's length leaves. Raises BadRequest when ``min_tokens``
    cannot be reached.
    """
    room = limits.max_model_len - prompt_length
    max_tokens = room if params.max_tokens is None else min(params.max_tokens, room)
    if params.min_tokens > max_tokens:
        raise BadRequest(
            f"params.min_tokens: {params.min_tokens} is more than the {max_tokens} tokens that "
            f"fit after a prompt of {prompt_length} (max_model_len is {limits.max_model_len})"
        )
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=params.min_tokens,
        temperature=0.0 if params.temperature <= GREEDY_UP_TO else params.temperature,
        top_p=params.top_p,
        top_k=max(params.top_k, 0),
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        seed=params.seed,
        stop_token_ids=tuple(dict.fromkeys(params.stop_token_ids or ())),
        ignore_eos=params.ignore_eos,
        logprobs=params.logprobs,
        logit_bias=params.logit_bias or {},
        n=params.n,
        grammar=grammar,
    )


def stop_strings(params: Params) -> tuple[str, ...]:
    """``stop`` as a tuple; the struct has refused empty ones."""
    if params.stop is None:
        return ()
    return (params.stop,) if isinstance(params.stop, str) else tuple(params.stop)


def _check_params(params: Params, limits: EdgeLimits) -> None:
    check_combination(params)
    check_ids("params.logit_bias", params.logit_bias or (), limits.vocab_size)
    check_ids("params.stop_token_ids", params.stop_token_ids or (), limits.vocab_size)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise BadRequest(
            f"params.min_tokens: {params.min_tokens} is more than max_tokens {params.max_tokens}"
        )
    ending = {*(params.stop_token_ids or ()), *limits.eos_ids}
    if params.min_tokens and len(ending) >= limits.vocab_size:
        raise BadRequest(
            f"params.stop_token_ids: every one of the {limits.vocab_size} tokens ends the answer, "
            f"so min_tokens {params.min_tokens} cannot be reached"
        )
    if params.n > limits.max_num_seqs:
        raise BadRequest(
            f"params.n: {params.n} is more than the {limits.max_num_seqs} sequences that run at "
            "once (max_num_seqs)"
        )


def check_tools(tools: Sequence[Tool]) -> None:
    """Raises BadRequest for two of one name: a call says no more than that."""
    seen: dict[str, int] = {}
    for at, tool in enumerate(tools):
        first = seen.setdefault(tool.function.name, at)
        if first != at:
            raise BadRequest(
                f"tools[{at}].function.name: tools[{first}] has the name "
                f"{tool.function.name!r} already"
            )


def check_ids(field: str, ids: object, vocab_size: int) -> None:
    """Raises BadRequest that names the first id which is no token's."""
    assert isinstance(ids, (list, tuple, dict))
    for token in ids:
        if not 0 <= token < vocab_size:
            raise BadRequest(
                f"{field}: id {token} is outside the vocabulary of {vocab_size} (0 to "
                f"{vocab_size - 1})"
            )
