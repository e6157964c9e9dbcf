"""What a client asked for, as the engine sees it: token ids and numbers, never text."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. Names and meaning as in ``pagedd-protocol.7``; already validated.

    ``stop_token_ids`` end a choice in addition to the model's end tokens. ``top_k`` = 0 is off.
    Stop strings are not here: the daemon finds them and cancels the choice.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)
    n: int = 1
    grammar: str | None = None  # in llguidance's form: no token that it forbids is drawn


@dataclass(frozen=True, slots=True)
class Request:
    """One ``generate``, known by the ``handle`` that the daemon chose (unique per engine life)."""

    handle: int
    prompt: tuple[int, ...]
    params: SamplingParams
    priority: int = 0
    salt: bytes = b""
    client: str = ""  # whom --fair-share counts its tokens for
