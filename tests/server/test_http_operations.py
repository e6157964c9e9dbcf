"""What holds for requests over the websocket holds over HTTP: limits, restarts, keys, TLS."""

from __future__ import annotations

import json
import os
import signal
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from pagedd.core.room import LEAST_MS, MOST_MS
from pagedd.server.settings import TlsFiles
from tests.engine.fake_engine import SLOW
from tests.server.certificates import certificate
from tests.server.harness import PATIENCE_S, Daemon, Frame, until

Start = Callable[..., Daemon]


@pytest.fixture
def serve(start: Start) -> Start:
    """Start daemons with HTTP."""
    return lambda **options: start(http="127.0.0.1:0", **options)


def base(daemon: Daemon) -> str:
    return str(daemon.status()["endpoints"][-1])


def post(daemon: Daemon, *, verify: Any = True, key: str = "", **body: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(verify=verify, trust_env=False, timeout=PATIENCE_S) as client:
        return client.post(
            f"{base(daemon)}/v1/completions", json={"prompt": "abc", **body}, headers=headers
        )


def error(answer: httpx2.Response) -> Frame:
    found: Frame = answer.json()["error"]
    return found


class Asked:
    """A request in a thread; ``answer`` waits for it."""

    def __init__(self, daemon: Daemon, **body: Any) -> None:
        self._answers: list[httpx2.Response] = []
        self._thread = threading.Thread(
            target=lambda: self._answers.append(post(daemon, **body)), daemon=True
        )
        self._thread.start()

    def answer(self) -> httpx2.Response:
        self._thread.join(PATIENCE_S)
        assert self._answers, "no answer came"
        return self._answers[0]


def text_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    if "text/event-stream" not in answer.headers["content-type"]:
        return str(answer.json()["choices"][0]["text"])
    *events, last = [line for line in answer.text.split("\n\n") if line]
    assert last == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert not any("error" in chunk for chunk in chunks)
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_time_limit_ends_a_request_and_is_not_tried_again(serve: Start, stream: bool) -> None:
    daemon = serve()
    slow = {"seed": SLOW, "max_tokens": 200, "stream": stream, "timeout_s": 0.2}
    answer = post(daemon, **slow)
    if stream:
        assert answer.status_code == 200
        *_, event, end = [line for line in answer.text.split("\n\n") if line]
        assert end == "data: [DONE]"
        assert json.loads(event.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
    else:
        # none of the statuses that OpenAI's client tries again by itself
        assert answer.status_code == 422
        assert "Retry-After" not in answer.headers
        assert error(answer)["code"] == "deadline_exceeded"
    assert daemon.until_quiet()["pages"]["owned"] == 0
    refused = post(daemon, timeout_s=0)
    assert refused.status_code == 400
    assert "timeout_s" in error(refused)["message"]
    assert daemon.stop()[0] == 0


def test_a_full_queue_says_when_to_come_again(serve: Start) -> None:
    """About when the first that waits begins: the longer that what runs may take, the later."""
    waits = []
    for max_tokens in (20, 150):
        daemon = serve(engine={"max_num_seqs": 1, "step_s": 0.06}, config={"max_queue": 1})
        with daemon.client() as client:
            for id, wanted in (("runs", max_tokens), ("waits", 1)):
                client.send(
                    type="generate",
                    id=id,
                    prompt="abc",
                    params={"max_tokens": wanted, "ignore_eos": True},
                )
                client.until("started" if id == "runs" else "accepted", id=id)
            for _ in range(5):
                client.until("delta", id="runs")  # a few steps teach what a step takes
            refused = client.generate("more", prompt="abc")[-1]
            assert (refused["code"], refused["retryable"]) == ("queue_full", True)
            wait = refused["retry_after_ms"]
            assert LEAST_MS <= wait <= MOST_MS
            waits.append(wait)
            answer = post(daemon)
            assert answer.status_code == 429
            assert error(answer)["code"] == "queue_full"
            assert 1 <= int(answer.headers["Retry-After"]) <= MOST_MS // 1000
        daemon.until_quiet()
        daemon.stop()
    assert waits[0] < waits[1]


def test_what_waits_outlives_its_engine(serve: Start) -> None:
    daemon = serve(engine={"max_num_seqs": 1})
    references = [text_of(post(daemon, prompt=f"q{at}", max_tokens=9)) for at in range(4)]
    with daemon.client() as client:
        client.send(type="generate", id="a", prompt="a", params={"seed": SLOW, "max_tokens": 200})
        client.until("delta", id="a")
        asked = [
            Asked(daemon, prompt=f"q{at}", max_tokens=9, stream=at % 2 == 1) for at in range(4)
        ]
        until(lambda: client.status()["requests"]["waiting"] == 4, "the queue")
        os.kill(client.status()["engine_pid"], signal.SIGKILL)
        assert client.until("error")["id"] == "a"
        assert [text_of(each.answer()) for each in asked] == references
    daemon.until_quiet()
    daemon.stop()


def test_health_says_what_the_state_is(serve: Start) -> None:
    daemon = serve()
    url = f"{base(daemon)}/health"

    def health() -> int:
        return httpx2.get(url, timeout=PATIENCE_S, trust_env=False).status_code

    assert health() == 200
    engine = daemon.status()["engine_pid"]
    os.kill(engine, signal.SIGSTOP)
    until(lambda: health() == 503, "word of the stop")
    os.kill(engine, signal.SIGKILL)
    until(lambda: daemon.status()["engine_pid"] not in (0, engine), "another engine")
    until(lambda: health() == 200, "word of it")
    daemon.stop()


def test_keys_are_reloaded_for_http_too(serve: Start, tmp_path: Path) -> None:
    again = tmp_path / "settings"
    daemon = serve(api_keys=("one",), read_again=again)
    assert [post(daemon, key=key, max_tokens=1).status_code for key in ("one", "two", "")] == [
        200,
        401,
        401,
    ]
    again.write_bytes(
        msgspec.json.encode(msgspec.structs.replace(daemon.settings, api_keys=("two",)))
    )
    daemon.signal(signal.SIGHUP)
    until(lambda: post(daemon, key="two", max_tokens=1).status_code == 200, "the other key")
    assert post(daemon, key="one", max_tokens=1).status_code == 401
    daemon.stop()


def test_http_is_encrypted_by_the_same_certificate(serve: Start, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    daemon = serve(tls=TlsFiles(str(cert), str(key)))
    assert base(daemon).startswith("https://127.0.0.1:")
    trusted = ssl.create_default_context(cafile=str(cert))
    assert text_of(post(daemon, verify=trusted, max_tokens=3, stream=True))
    with pytest.raises(httpx2.ConnectError):
        post(daemon, max_tokens=3)
    code, errors = daemon.stop()
    assert (code, "Traceback" in errors) == (0, False)
