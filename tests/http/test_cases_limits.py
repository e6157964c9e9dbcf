"""Prompts at and beyond the limits, and who has to wait for them (cases B36 and B37)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.http.edges import HTTP_EDGES, Answer, Served, ask, dumps, health, post
from tests.http.models import Serve, serving, tiny_text
from tests.http.raw import completion, connect
from tests.real_daemon import quiet, wire
from tests.server.harness import Daemon, until
from tests.tiny.models import build
from tests.tiny.tokenizer import VOCAB_SIZE

MAX_LEN = 512  # of the tiny model
SMALL = 256  # of the fake engine

# --- B36: a big prompt holds nobody up ------------------------------------------------------------


class Pulse:
    """Asks for health again and again, as probes do."""

    def __init__(self, served: Served) -> None:
        self.times: list[float] = []  # seconds that each answer took
        self._served = served
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(0.02):
            began = time.monotonic()
            assert health(self._served)[0] == 200
            self.times.append(time.monotonic() - began)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        worst = sorted(self.times)[int(len(self.times) * 0.99)]
        print(f"health: {len(self.times)} answers, 99% of them within {worst * 1000:.0f} ms")


@pytest.fixture(scope="module", params=["plain", "measured"])
def patient(
    request: pytest.FixtureRequest,
    text_dir: Any,
    folders: Callable[[], Any],
) -> Iterator[Daemon]:
    """With a tokenizer that nobody measured it takes a second to refuse a text of a megabyte."""
    text = text_dir if request.param == "plain" else tiny_text(folders() / "t")
    daemon = Daemon(folders(), text, engine={"step_s": 0.01}, http="127.0.0.1:0")
    yield daemon
    assert daemon.stop()[0] == 0


@pytest.mark.parametrize("edge", ["http", "wire-stream"])
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("words and " * 100_000, 400),
        ("a" * 100_000, 400),
        ("é" * 500_000, 400),
        ("#" * (SMALL - 2), 200),
    ],
    ids=["1 MB of words", "100 k letters", "1 MB of é", "the longest"],
)
def test_b36_health_goes_on_and_so_do_streams(
    request: pytest.FixtureRequest, patient: Daemon, edge: str, text: str, status: int
) -> None:
    served = Served.of(patient)
    takes_long = text.startswith("words") and request.node.callspec.params["patient"] == "plain"
    clients = (patient.client(), patient.client(), ThreadPoolExecutor(1), Pulse(served))
    with clients[0] as other, clients[1] as idle, clients[2] as pool, clients[3] as pulse:
        other.send(type="generate", id="runs", prompt="abc", params={"max_tokens": 250})
        other.until("delta")
        asked = len(pulse.times)
        big: Future[Answer] = pool.submit(ask, edge, served, text, max_tokens=1)
        until(lambda: len(pulse.times) >= asked + 3, "health to go on")
        other.until("delta")
        assert idle.socket.ping().wait(20), "a ping is answered"
        assert not (takes_long and big.done()), "nothing of this waits for its end"
        other.send(type="cancel", id="runs")
        assert other.rest("runs")[-1]["choices"][0]["finish_reason"] == "cancelled"
        answer = big.result(60)
        assert answer.status == status
        assert status == 200 or answer.code in ("prompt_too_long", "context_length_exceeded")
    assert ask(edge, served, "ok", max_tokens=4).text == "okok"


def test_b36_a_client_that_left_a_big_prompt_is_forgotten(patient: Daemon) -> None:
    served = Served.of(patient)
    before = patient.status()["requests"]
    for _ in range(3):
        with connect(served) as sock:
            sock.sendall(completion(prompt="a" * 100_000))
    assert ask("http", served, "ok", max_tokens=4).text == "okok"
    after = patient.until_quiet()["requests"]
    assert after["finished_total"] == before["finished_total"] + 1


# --- B37: edge prompts and limits -----------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One engine process, from the first case to the last."""
    serve: Serve
    with serving() as serve:
        served = serve(lambda folder: build("llama", folder), "--page-size=8")
        with wire(served.socket) as client:
            engine = client.status()["engine_pid"]
            yield served
            assert quiet(client)["engine_pid"] == engine


def well(served: Served) -> None:
    answer = ask("http", served, "ok", max_tokens=4, temperature=0, ignore_eos=True)
    assert (answer.status, answer.completion_tokens) == (200, 4)


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        [""],
        [],
        [[]],
        [[], [1]],
        [-1],
        [[-1]],
        [VOCAB_SIZE],
        [[1], [VOCAB_SIZE]],
        [1.5],
        [True],
        [None],
        ["a", 1],
        [1, "a"],
        [[1], "a"],
        [["a"]],
        [[[1]]],
        {},
        None,
        5,
        True,
        [2**31],
        [10**30],
        ["a"] * 1025,
    ],
    ids=lambda prompt: str(prompt)[:20],
)
def test_b37_prompts_that_are_none(served: Served, prompt: Any) -> None:
    for stream in (False, True):
        body = dumps({"prompt": prompt, "max_tokens": 2, "stream": stream})
        got = post(f"{served.http}/v1/completions", body)
        assert got.status_code == 400
        assert "prompt" in got.json()["error"]["message"]
        assert got.json()["error"]["param"].startswith("prompt")
    well(served)


@pytest.mark.parametrize(
    "prompt", ["", [], [-1], [VOCAB_SIZE], [1.5], [True], ["a", 1], [[1]], [10**30]], ids=str
)
@pytest.mark.parametrize("edge", ["wire", "wire-stream"])
def test_b37_prompts_that_are_none_on_the_websocket(served: Served, edge: str, prompt: Any) -> None:
    answer = ask(edge, served, prompt, max_tokens=2)
    assert answer.status == 400
    assert "prompt" in answer.message
    well(served)


@pytest.mark.parametrize("value", [-1, 0, "5", 1.5, True, [], 2**31], ids=str)
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_b37_counts_that_are_none(served: Served, edge: str, name: str, value: Any) -> None:
    chat = [{"role": "user", "content": "hi"}]
    answer = ask(edge, served, messages=chat, **{name: value})
    assert answer.status == 400
    assert name in answer.message
    if name == "max_tokens":
        answer = ask(edge, served, "x", max_tokens=value)
        assert (answer.status, name in answer.message) == (400, True)
    well(served)


def test_b37_the_last_id_and_no_limit(served: Served, edge: str) -> None:
    last = ask(edge, served, [VOCAB_SIZE - 1], max_tokens=1)
    assert (last.status, last.completion_tokens) == (200, 1)
    free = ask(edge, served, [5] * (MAX_LEN - 3), max_tokens=None, ignore_eos=True)
    assert (free.finish_reason, free.completion_tokens) == ("length", 3)
    left = ask(edge, served, [5] * (MAX_LEN - 1), max_tokens=100, ignore_eos=True)
    assert (left.finish_reason, left.completion_tokens) == ("length", 1)


def test_b37_lengths_around_the_limit(served: Served, edge: str) -> None:
    longest = ask(edge, served, [5] * (MAX_LEN - 1), max_tokens=1)
    assert (longest.status, longest.prompt_tokens) == (200, MAX_LEN - 1)
    for length in (MAX_LEN, MAX_LEN + 1):
        answer = ask(edge, served, [5] * length, max_tokens=1)
        assert answer.status == 400
        assert str(length) in answer.message
        assert str(MAX_LEN) in answer.message
        assert edge not in HTTP_EDGES or answer.code == "context_length_exceeded"
    well(served)


def test_b37_one_prompt_of_a_list_is_too_long(served: Served) -> None:
    """Then none of them runs."""
    with wire(served.socket) as client:
        before = client.status()["tokens"]["generated"]
        body = {"prompt": [[5, 6], [5] * MAX_LEN, [7]], "max_tokens": 3}
        got = post(f"{served.http}/v1/completions", dumps(body))
        assert got.json()["error"]["code"] == "context_length_exceeded"
        assert quiet(client)["tokens"]["generated"] == before


def test_b37_an_echo_of_nothing_more(served: Served) -> None:
    body = {"prompt": ["hello", "you"], "max_tokens": 0, "echo": True, "n": 2}
    whole = post(f"{served.http}/v1/completions", dumps(body)).json()
    assert [choice["text"] for choice in whole["choices"]] == ["hello"] * 2 + ["you"] * 2
    assert whole["usage"]["completion_tokens"] == 0
    body = {"prompt": [104, 105], "max_tokens": 2, "echo": True, "temperature": 0}
    alone = ask("http", served, body["prompt"], max_tokens=2, temperature=0).text
    echoed = post(f"{served.http}/v1/completions", dumps(body)).json()["choices"][0]["text"]
    assert echoed.endswith(alone)
    assert len(echoed) > len(alone)
