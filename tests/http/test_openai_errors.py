"""Refusals as the official ``openai`` package raises them, and what it tries again by itself."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest

from tests.engine.fake_engine import CRASH, NAN, SLOW
from tests.http.edges import Served
from tests.server.harness import Daemon, until

Start = Callable[..., Daemon]


@contextmanager
def connected(daemon: Daemon, **options: Any) -> Iterator[openai.OpenAI]:
    """A client that tries nothing again unless told otherwise; its name is that of a model."""
    options = {"api_key": "none", "max_retries": 0, **options}
    with openai.OpenAI(base_url=f"{Served.of(daemon).http}/v1", **options) as client:
        yield client


def complete(client: openai.OpenAI, seed: int | None = None, **fields: Any) -> Any:
    """A completion of the fake engine, which says the prompt again; ``seed`` may be a spell."""
    fields = {"prompt": "abc", "max_tokens": 6, "seed": seed, **fields}
    return client.completions.create(model="fake", **fields)


def test_keys(start: Start) -> None:
    daemon = start(api_keys=("first", "second"))
    for key in ("first", "second"):
        with connected(daemon, api_key=key) as client:
            assert complete(client).choices[0].text == "abcabc"
    with connected(daemon, api_key="third") as client:
        for ask in (client.models.list, lambda: complete(client)):
            with pytest.raises(openai.AuthenticationError) as refused:
                ask()
            assert refused.value.status_code == 401
            assert "third" not in str(refused.value)


def test_a_full_queue_is_a_rate_limit_and_is_waited_for(start: Start) -> None:
    daemon = start(engine={"max_num_seqs": 1}, config={"max_queue": 1})
    codes: Counter[int] = Counter()
    answers: list[str] = []

    def patient() -> None:
        watching = httpx2.Client(
            event_hooks={"response": [lambda response: codes.update([response.status_code])]}
        )
        with connected(daemon, max_retries=50, http_client=watching) as client:
            answers.append(complete(client).choices[0].text)

    with daemon.client() as wire, connected(daemon) as client:
        for id in ("runs", "waits"):
            params = {"max_tokens": 5000, "seed": SLOW}
            wire.send(type="generate", id=id, prompt="abc", params=params)
            wire.until("accepted")
        with pytest.raises(openai.RateLimitError) as refused:
            complete(client)
        assert refused.value.code == "queue_full"
        assert int(refused.value.response.headers["Retry-After"]) >= 1
        thread = threading.Thread(target=patient)
        thread.start()
        until(lambda: codes[429], "a first refusal")
        for id in ("runs", "waits"):
            wire.send(type="cancel", id=id)
        thread.join(60)
    assert answers == ["abcabc"]
    assert codes[200] == 1


def test_faults_of_the_server(start: Start) -> None:
    daemon = start()
    with connected(daemon) as client:
        with pytest.raises(openai.InternalServerError) as invalid:
            complete(client, NAN)
        assert invalid.value.code == "invalid_logits"
        with pytest.raises(openai.InternalServerError) as crashed:
            complete(client, CRASH)
        assert (crashed.value.code, crashed.value.status_code) == ("engine_failed", 503)
        daemon.until_state("ready")
        assert complete(client).choices[0].text == "abcabc"


def test_a_fault_in_mid_stream_is_an_exception_of_the_stream(start: Start) -> None:
    daemon = start()
    with connected(daemon) as client:
        stream = complete(client, NAN, stream=True)
        with pytest.raises(openai.APIError) as failed:
            list(stream)
        assert failed.value.code == "invalid_logits"
        assert complete(client).choices[0].text == "abcabc"


def test_a_client_whose_time_is_up_leaves_nothing_behind(start: Start) -> None:
    daemon = start()
    with connected(daemon, timeout=0.3) as client, pytest.raises(openai.APITimeoutError):
        complete(client, SLOW, max_tokens=200)
    status = daemon.until_quiet()
    assert status["requests"]["cancelled_total"] == 1
