"""The official ``openai`` package, unmodified, against a daemon with the embedded model."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from pagedd.models.catalog import DEFAULT_MODEL
from tests.http.edges import Served
from tests.real_daemon import daemon, quiet, wire
from tests.server.harness import ROOT, until

CAPITAL: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
STORY = "Once upon a time, in a house by the sea,"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A daemon that serves the embedded model over HTTP."""
    with tempfile.TemporaryDirectory(prefix="pagedd-") as home:
        flags = ("--http=127.0.0.1:0", "--kv-cache-memory=256MiB")
        with daemon(Path(home), DEFAULT_MODEL, *flags) as address:
            yield Served.at(address)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    """As a person makes it, but that a refusal is not tried again."""
    with openai.OpenAI(base_url=f"{served.http}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, messages: Any = CAPITAL, **fields: Any) -> Any:
    """A chat's answer, greedy unless told otherwise."""
    fields = {"temperature": 0, "max_tokens": 24, **fields}
    return client.chat.completions.create(model=DEFAULT_MODEL, messages=messages, **fields)


def complete(client: openai.OpenAI, prompt: Any = STORY, **fields: Any) -> Any:
    """A completion, greedy unless told otherwise."""
    fields = {"temperature": 0, "max_tokens": 12, **fields}
    return client.completions.create(model=DEFAULT_MODEL, prompt=prompt, **fields)


def texts(answer: Any) -> list[str]:
    """Of all choices, in their order."""
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    return [c.text if hasattr(c, "text") else c.message.content for c in answer.choices]


def ids_of(served: Served, text: str) -> list[int]:
    """What the daemon makes of a text."""
    answer = httpx2.post(f"{served.http}/tokenize", json={"prompt": text}).raise_for_status()
    ids: list[int] = answer.json()["tokens"]
    return ids


def test_models_are_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list()
    assert (model.id, model.object, model.owned_by) == (DEFAULT_MODEL, "model", "pagedd")
    assert client.models.retrieve(DEFAULT_MODEL) == model
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-7")
    assert refused.value.code == "model_not_found"


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = chat(client)
    (choice,) = answer.choices
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert choice.message.content == "The capital of France is Paris."
    assert choice.message.tool_calls is None
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    again = chat(client, [*CAPITAL, choice.message.model_dump(exclude_none=True), *CAPITAL])
    assert "Paris" in again.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens >= 32


@pytest.mark.parametrize("continuous", [False, True])
def test_a_streamed_chat_is_the_same(client: openai.OpenAI, continuous: bool) -> None:
    whole = chat(client)
    options = {"include_usage": True, "continuous_usage_stats": continuous}
    chunks = list(chat(client, stream=True, stream_options=options))
    *content, finish, usage = chunks
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert content[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in content)
    assert text == whole.choices[0].message.content
    assert len(content) >= whole.usage.completion_tokens / 2, "it came in pieces"
    assert finish.choices[0].finish_reason == "stop"
    assert usage.choices == []
    assert usage.usage.completion_tokens == whole.usage.completion_tokens
    assert all((chunk.usage is not None) is continuous for chunk in content)


def test_the_asynchronous_client_asks_much_at_once(served: Served, client: openai.OpenAI) -> None:
    prompts = [f"{STORY} there lived {name}" for name in ("a cat", "Ann", "no one", "two men")]
    alone = [texts(complete(client, prompt))[0] for prompt in prompts]

    async def stream(aclient: openai.AsyncOpenAI, prompt: str) -> str:
        chunks = await aclient.completions.create(
            model=DEFAULT_MODEL, prompt=prompt, temperature=0, max_tokens=12, stream=True
        )
        return "".join([chunk.choices[0].text async for chunk in chunks if chunk.choices])

    async def crowd() -> list[str]:
        url = f"{served.http}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as aclient:
            return await asyncio.gather(*[stream(aclient, prompt) for prompt in prompts])

    assert asyncio.run(crowd()) == alone


def test_choices_of_a_seed_are_the_same_again_and_streamed(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"n": 3, "seed": 11, "temperature": 1, "max_tokens": 8}
    first = chat(client, **fields)
    assert len(set(texts(first))) == 3
    assert texts(chat(client, **fields)) == texts(first)
    pieces = dict.fromkeys(range(3), "")
    ends = {}
    for chunk in chat(client, stream=True, **fields):
        for choice in chunk.choices:
            pieces[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends.get(choice.index)
    assert list(pieces.values()) == texts(first)
    assert list(ends.values()) == [choice.finish_reason for choice in first.choices]


def test_logprobs_of_a_chat(client: openai.OpenAI) -> None:
    whole = chat(client, logprobs=True, top_logprobs=3, max_tokens=5)
    content = whole.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in content).decode() == texts(whole)[0]
    assert len(content) == whole.usage.completion_tokens == 5
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0, "greedy takes the best"
    streamed = [
        entry
        for chunk in chat(client, logprobs=True, top_logprobs=3, max_tokens=5, stream=True)
        for choice in chunk.choices
        if choice.logprobs
        for entry in choice.logprobs.content
    ]
    assert [entry.token for entry in streamed] == [entry.token for entry in content]
    plain = chat(client, logprobs=True, max_tokens=2)
    assert [entry.top_logprobs for entry in plain.choices[0].logprobs.content] == [[], []]


def test_logprobs_of_a_completion(client: openai.OpenAI) -> None:
    answer = complete(client, logprobs=2, max_tokens=4)
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == texts(answer)[0]
    assert logprobs.text_offset[0] == 0
    for token, logprob, top in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
    ):
        assert top[token] == logprob == max(top.values())


def test_prompts_of_every_kind(served: Served, client: openai.OpenAI) -> None:
    other = "The sea is"
    both = texts(complete(client, [STORY, other]))
    assert both == [texts(complete(client, prompt))[0] for prompt in (STORY, other)]
    ids = [ids_of(served, prompt) for prompt in (STORY, other)]
    assert texts(complete(client, ids[0])) == both[:1]
    answer = complete(client, ids)
    assert texts(answer) == both
    assert answer.usage.prompt_tokens == sum(map(len, ids))
    echoed = complete(client, [STORY, other], echo=True, n=2)
    assert texts(echoed) == [STORY + both[0]] * 2 + [other + both[1]] * 2
    assert texts(complete(client, ids[1], echo=True)) == [other + both[1]]


def test_a_streamed_completion_of_many(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"n": 2, "echo": True, "stream_options": {"include_usage": True}}
    whole = complete(client, [STORY, "The sea is"], n=2, echo=True)
    pieces = dict.fromkeys(range(4), "")
    usage = None
    for chunk in complete(client, [STORY, "The sea is"], stream=True, **fields):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces[choice.index] += choice.text
    assert list(pieces.values()) == texts(whole)
    assert usage is not None
    assert usage.total_tokens == whole.usage.total_tokens


def test_stops_and_limits(client: openai.OpenAI) -> None:
    stopped = chat(client, stop=[" France", "never"])
    assert texts(stopped) == ["The capital of"]
    assert stopped.choices[0].finish_reason == "stop"
    cut = chat(client, max_tokens=None, max_completion_tokens=3)
    assert cut.choices[0].finish_reason == "length"
    assert cut.usage.completion_tokens == 3
    biased = complete(client, logit_bias={"28": 100}, max_tokens=3)
    assert len(set(texts(biased)[0])) == 1, "one token again and again"


def test_parameters_of_pagedds_own(served: Served, client: openai.OpenAI) -> None:
    own: dict[str, Any] = {"top_k": 1, "min_p": 0.5, "repetition_penalty": 1.0, "priority": 5}
    hot = complete(client, temperature=5, extra_body=own)
    assert texts(hot) == texts(complete(client)), "of one token nothing is drawn"
    (first, *_) = ids_of(served, texts(hot)[0])
    ended = complete(client, extra_body={"stop_token_ids": [first]})
    assert (texts(ended), ended.choices[0].finish_reason) == ([""], "stop")
    forced = complete(client, "x", max_tokens=40, extra_body={"ignore_eos": True})
    assert forced.usage.completion_tokens == 40


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stop": ["a"] * 99}, "stop"),
        ({"extra_body": {"beam_width": 3}}, "beam_width"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"messages": []}, "messages"),
    ],
)
def test_bad_requests_name_the_field(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, **{"messages": CAPITAL, **fields})
    assert refused.value.param == param
    assert refused.value.type == "invalid_request_error"
    assert param in refused.value.message


def test_errors_are_of_their_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-7", messages=CAPITAL)
    assert (missing.value.code, missing.value.status_code) == ("model_not_found", 404)
    with pytest.raises(openai.BadRequestError) as long:
        complete(client, [7] * 9000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=DEFAULT_MODEL, input="x")


def test_a_stream_that_is_left_ends_the_request(served: Served, client: openai.OpenAI) -> None:
    stream = complete(client, max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    with wire(served.socket) as watcher:
        assert watcher.status()["requests"]["running"] == 1
        before = watcher.status()["requests"]["cancelled_total"]
        stream.close()
        until(lambda: not watcher.status()["requests"]["running"], "the end of the request")
        assert watcher.status()["requests"]["cancelled_total"] == before + 1
        quiet(watcher)


def test_the_example_of_the_readme_works(served: Served) -> None:
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"```python\n(from openai .*?)```", readme, re.DOTALL)
    code = block.replace("http://127.0.0.1:8411", served.http)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "The capital of France is Paris.\n", done.stderr
