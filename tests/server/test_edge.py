"""Limits that only a running engine has."""

from __future__ import annotations

import pytest

from pagedd.errors import BadRequest
from pagedd.protocol import Generate, Params
from pagedd.server.edge import EdgeLimits, check_frame

LIMITS = EdgeLimits(vocab_size=8, max_model_len=64, max_num_seqs=4, eos_ids=(7,))


def check(params: Params) -> None:
    check_frame(Generate("a", prompt="x", params=params), LIMITS)


def test_some_token_must_not_end_the_answer_while_it_may_not_end() -> None:
    """Otherwise the first draw has nothing to draw from."""
    check(Params(stop_token_ids=list(range(7))))
    check(Params(stop_token_ids=list(range(6)), min_tokens=2))
    with pytest.raises(BadRequest, match=r"params\.stop_token_ids: every one of the 8 tokens"):
        check(Params(stop_token_ids=list(range(7)), min_tokens=2))
