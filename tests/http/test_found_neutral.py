"""OpenAI's parameters that are not carried out: asking for nothing is no fault, for more it is."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.http.edges import Served, dumps, post

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "abc"}]
NEUTRAL: list[dict[str, Any]] = [
    {"store": False},
    {"metadata": {}},
    {"service_tier": "auto"},
    {"service_tier": "default"},
    {"modalities": ["text"]},
    {"verbosity": "medium"},
    {"functions": []},
    {"function_call": "none"},
    {"tools": []},
    {"tool_choice": "none"},
    {"parallel_tool_calls": True},
    {"response_format": {"type": "text"}},
    {"logprobs": False, "top_logprobs": 0},
    {"top_logprobs": 0},
    {"stop": []},
    {"logit_bias": {}},
    {"user": ""},
    {"stream_options": {}},
]
NULLS = [
    "store",
    "metadata",
    "service_tier",
    "modalities",
    "verbosity",
    "functions",
    "function_call",
    "audio",
    "prediction",
    "reasoning_effort",
    "web_search_options",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "n",
    "stop",
    "seed",
    "user",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "max_completion_tokens",
]
REFUSED: list[dict[str, Any]] = [
    {"store": True},
    {"metadata": {"a": "b"}},
    {"service_tier": "priority"},
    {"modalities": ["text", "audio"]},
    {"modalities": ["audio"]},
    {"verbosity": "low"},
    {"functions": [{"name": "f"}]},
    {"function_call": "auto"},
    {"audio": {"voice": "alloy", "format": "wav"}},
    {"prediction": {"type": "content", "content": "x"}},
    {"reasoning_effort": "high"},
    {"web_search_options": {}},
    {"prompt_cache_key": "x"},
    {"safety_identifier": "x"},
]


@pytest.mark.parametrize("field", NEUTRAL, ids=str)
def test_what_asks_for_nothing_changes_nothing(served: Served, field: dict[str, Any]) -> None:
    asked = {"messages": USER, "max_tokens": 4, "seed": 1}
    plain = post(served.http + CHAT, dumps(asked)).json()
    got = post(served.http + CHAT, dumps(asked | field))
    assert got.status_code == 200, got.text
    assert got.json()["choices"] == plain["choices"]


@pytest.mark.parametrize("name", NULLS)
def test_null_is_as_if_it_were_not_there(served: Served, name: str) -> None:
    got = post(served.http + CHAT, dumps({"messages": USER, "max_tokens": 4, name: None}))
    assert got.status_code == 200, got.text


@pytest.mark.parametrize("field", REFUSED, ids=str)
def test_what_asks_for_more_is_refused_by_name(served: Served, field: dict[str, Any]) -> None:
    got = post(served.http + CHAT, dumps({"messages": USER, "max_tokens": 4} | field))
    assert got.status_code == 400, got.text
    [name] = field
    assert got.json()["error"]["param"].startswith(name)


@pytest.mark.parametrize(("suffix", "status"), [(None, 200), ("", 200), ("x", 400)])
def test_an_empty_suffix_is_none(served: Served, suffix: str | None, status: int) -> None:
    got = post(served.http + TEXT, dumps({"prompt": "abc", "max_tokens": 4, "suffix": suffix}))
    assert got.status_code == status, got.text


def test_the_turn_of_an_assistant_comes_back_as_clients_write_it(served: Served) -> None:
    turn = {"role": "assistant", "content": "so", "refusal": None, "annotations": []}
    turn |= {"audio": None, "function_call": None, "tool_calls": None}
    got = post(served.http + CHAT, dumps({"messages": [*USER, turn, *USER], "max_tokens": 4}))
    assert got.status_code == 200, got.text


def test_the_client_of_openai_may_say_that_nothing_is_stored(served: Served) -> None:
    client = OpenAI(base_url=f"{served.http}/v1", api_key="none", max_retries=0)
    ask = client.chat.completions.create
    with client:
        ask(model="fake", messages=[{"role": "user", "content": "abc"}], store=False, metadata={})
        with pytest.raises(BadRequestError) as refused:
            ask(model="fake", messages=[{"role": "user", "content": "abc"}], store=True)
    assert refused.value.param == "store"
