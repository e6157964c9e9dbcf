"""``pagedd bench`` against OpenAI-compatible servers: the same load, and clear errors."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd import protocol
from pagedd.bench.completions import CompletionsWire
from pagedd.bench.openai_server import Server
from pagedd.bench.sse import EventReader, message_of
from pagedd.bench.words import WORDS
from pagedd.cli.main import main
from pagedd.errors import PageddError
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.fake_openai import FakeOpenAI

LOAD = ["bench", "--num-requests", "6", "--concurrency", "3", "--input-len", "8"]
LOAD += ["--output-len", "5", "--json", "-"]


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI().serving() as fake:
        yield fake


@pytest.fixture(autouse=True)
def nothing_of_the_person(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name in [name for name in os.environ if name.startswith("PAGEDD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*LOAD, *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_request_is_exactly_what_was_drawn_and_every_token_is_counted(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    result = bench(capsys, "--url", server.url)
    bodies = [json.loads(body) for body in server.bodies]
    assert len(bodies) == 7  # the first is the warm-up
    for body in bodies:
        assert body["ignore_eos"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert (body["model"], body["temperature"], body["stream"]) == ("fake", 0.0, True)
        assert all(50 <= token < 950 for token in body["prompt"])
    asked = sum(body["max_tokens"] for body in bodies[1:])
    assert result["output_tokens"] == asked
    assert result["input_tokens"] == sum(len(body["prompt"]) for body in bodies[1:])
    assert (result["completed"], result["failed"], result["unlike_asked"]) == (6, 0, 0)
    assert result["untold_tokens"] == 0
    assert result["server"] == {"url": server.url, "model": "fake", "owner": "fakes"}
    assert len(server.connections) == 3  # that of the warm-up is used again


def test_a_daemon_and_a_server_get_the_same_requests_in_turns(
    server: FakeOpenAI, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.texts = ["a", "b"]
    result = bench(capsys, "--url", daemon.url, "--against", server.url, "--repeats", "2")
    frames = []
    while not daemon.received.empty():
        if isinstance(frame := daemon.received.get(), protocol.Generate):
            frames.append(frame)
    # each side has one request to warm up in every turn
    assert len(frames) == len(server.bodies) == 14
    sent = [json.loads(body) for body in server.bodies]
    drawn = sorted((body["prompt"], body["max_tokens"]) for body in sent)
    assert drawn == sorted((frame.prompt_tokens, frame.params.max_tokens) for frame in frames)
    assert len({tuple(body["prompt"]) for body in sent}) == 14  # no turn repeats a prompt
    assert result["names"] == ["pagedd", "fakes"]
    assert [a["load_id"] == b["load_id"] for a, b in result["turns"]] == [True, True]
    assert result["rows"][0]["medians"][1] > 0


def test_the_table_has_both_sides_and_their_ratio(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeOpenAI(shorter=1).serving() as other:
        arguments = ["--url", server.url, "--against", other.url, "--repeats", "1"]
        assert main([*LOAD[:-2], *arguments]) == 0
    text = capsys.readouterr().out
    names = [each.url.removeprefix("http://") for each in (server, other)]
    assert f"{names[0]}: fake at {server.url} (fakes)" in text
    assert "6 requests of 8 tokens in and 5 tokens out on average, 3 at a time; the same" in text
    assert f"  {names[0]}  {names[1]}" in text
    row = next(line for line in text.splitlines() if "output tokens/s" in line)
    assert row.endswith("×")
    assert f"{names[1]}: 6 of 6 answers had another length than was asked for" in text


def test_words_instead_of_ids_need_no_vocabulary(
    server: FakeOpenAI, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    server.models = None
    result = bench(capsys, "--url", server.url, "--prompts", "text")
    bodies = [json.loads(body) for body in server.bodies]
    words = [body["prompt"].split(" ") for body in bodies]
    assert all(word in WORDS for prompt in words for word in prompt)
    assert result["input_tokens"] == sum(len(prompt) for prompt in words[1:])
    assert "model" not in bodies[0]
    assert bench(capsys, "--url", daemon.url, "--prompts", "text")["load_id"] == result["load_id"]
    assert main([*LOAD, "--url", server.url]) == 2
    assert "give --vocab-size, or --prompts text" in capsys.readouterr().err
    assert bench(capsys, "--url", server.url, "--vocab-size", "60")["completed"] == 6


def test_several_tokens_in_an_event_are_said_to_be_so(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    server.per_event = 2
    whole = ["--fixed-len", "--url", server.url]
    result = bench(capsys, *whole)
    assert (result["output_tokens"], result["untold_tokens"]) == (30, 12)
    assert main([*LOAD[:-2], *whole]) == 0
    assert "12 tokens came together with others" in capsys.readouterr().out
    server.usage = False  # then events are all that can be counted
    result = bench(capsys, *whole)
    assert (result["output_tokens"], result["unlike_asked"]) == (18, 6)


def test_a_connection_that_the_server_closes_is_opened_anew(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    server.closes = True
    assert bench(capsys, "--url", server.url + "/v1/")["completed"] == 6
    assert len(server.connections) > 3


def test_a_server_that_closes_all_idle_connections_at_once_is_asked_anew() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    wire = CompletionsWire(Server(f"http://127.0.0.1:{port}", "127.0.0.1", port, "", None))
    with listening, wire:
        wire.open(3)
        accepted = {each.getpeername(): each for each, _ in (listening.accept() for _ in range(3))}
        wire.send(protocol.Generate("0", prompt_tokens=[1]))
        asked = accepted.pop(wire._busy["0"].socket.getsockname())
        assert asked.recv(1 << 16)
        for each in (asked, *accepted.values()):
            # closed with a reset: what is sent on the others then fails at once
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        assert wire.receive(10) is None
        anew, _ = listening.accept()
        with anew:
            assert b"POST /v1/completions" in anew.recv(1 << 16)


def test_the_key_is_sent_to_the_server_that_is_measured(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(capsys, "--url", server.url, "--api-key", "sesame")
    assert {headers["authorization"] for headers in server.headers} == {"Bearer sesame"}


@pytest.mark.parametrize(
    ("changes", "code", "expected"),
    [
        ({"status": 400}, 1, "answers HTTP 400: the prompt is not welcome"),
        ({"status": 404, "refusal": b""}, 1, "/v1/completions answers HTTP 404: nothing"),
        ({"status": 422, "refusal": b'{"detail": [{"msg": "bad"}]}'}, 1, "HTTP 422: bad"),
        ({"status": 401, "refusal": b"no"}, 1, "HTTP 401: no"),
        ({"status": 503, "refusal": b"<p>busy</p>"}, 1, "HTTP 503: <p>busy</p>"),
        ({"streams": False}, 1, "answers without a stream of events, but with application/json"),
        ({"dies_after": 1}, 69, "was lost in mid-answer"),
        ({"error": "out of memory"}, 1, "out of memory"),
        ({"shorter": 1000}, 1, "answers without any text"),
    ],
)
def test_what_goes_wrong_is_one_line(
    changes: dict[str, Any],
    code: int,
    expected: str,
    server: FakeOpenAI,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in changes.items():
        setattr(server, name, value)
    assert main([*LOAD, "--url", server.url]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert expected in captured.err


def test_a_server_that_is_busy_now_and_then_fails_those_requests(
    server: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    server.status, server.spare_first = 429, True
    assert main([*LOAD, "--url", server.url]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["completed"], result["failed"]) == (0, 6)
    assert "answers HTTP 429: the prompt is not welcome" in result["errors"][0]


def test_nobody_at_the_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert main([*LOAD, "--url", url]) == 69
    assert capsys.readouterr().err == f"pagedd: no server at {url}: Connection refused\n"


@given(st.lists(st.text()), st.integers(1, 20), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_events_are_found_however_they_are_cut(texts: list[str], size: int, end: str) -> None:
    events = [{"choices": [{"text": text, "finish_reason": None}]} for text in texts]
    stream = "".join(f"data: {msgspec.json.encode(event).decode()}{end}" for event in events)
    data = f"event: x{end}{stream}data: [DONE]{end}".encode()
    reader = EventReader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    chunks = [chunk for piece in pieces for chunk in reader.feed(piece)]
    assert [chunk.choices[0].text for chunk in chunks] == texts
    assert [chunk.pieces for chunk in chunks] == [1] * len(texts)


def test_an_event_that_is_no_completion_and_messages_of_errors() -> None:
    with pytest.raises(PageddError, match="no completion"):
        EventReader().feed(b"data: {\n\n")
    assert message_of({"object": "error", "message": "two\nlines"}) == "two lines"
    assert message_of({"error": {"code": 7}}) == "{'code': 7}"


def test_the_file_of_a_result_names_its_load(
    server: FakeOpenAI, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "out.json"
    assert main([*LOAD[:-1], str(file), "--url", server.url]) == 0
    assert f"(load {json.loads(file.read_text())['load_id']})" in capsys.readouterr().out
