"""One way to ask over both edges, HTTP and the websocket, whole answers and streams alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2

from pagedd.codes import class_of
from tests.real_daemon import wire
from tests.server.harness import PATIENCE_S, Daemon, Frame

EDGES = ("http", "http-stream", "wire", "wire-stream")
HTTP_EDGES = ("http", "http-stream")
# A connection for each request, as the websocket has here.
HTTP = httpx2.Client(
    timeout=PATIENCE_S,
    trust_env=False,
    verify=False,
    limits=httpx2.Limits(max_keepalive_connections=0),
)


class Served(NamedTuple):
    """Where a daemon listens: ``http`` a base URL, ``socket`` as ``unix:PATH``."""

    http: str
    socket: str

    @classmethod
    def of(cls, daemon: Daemon) -> Served:
        """A daemon of the black-box harness, started with ``http="127.0.0.1:0"``."""
        return cls(daemon.status()["endpoints"][-1], f"unix:{daemon.settings.socket}")

    @classmethod
    def at(cls, socket: str) -> Served:
        """A daemon of which only the socket is known."""
        with wire(socket) as client:
            return cls(client.status()["endpoints"][-1], socket)


@dataclass
class Choice:
    """``pieces``: the text as it came; one piece when it was not streamed."""

    pieces: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass
class Answer:
    """``status`` as HTTP has it, for both edges; ``message`` and ``code`` of an error."""

    status: int
    choices: list[Choice] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    message: str = ""
    code: str = ""
    param: str | None = None

    @property
    def text(self) -> str:
        """Of the only choice."""
        (choice,) = self.choices
        return choice.text

    @property
    def finish_reason(self) -> str | None:
        (choice,) = self.choices
        return choice.finish_reason


class Token(NamedTuple):
    """A value that is put into the JSON as it stands: ``NaN``, ``1e400``."""

    text: str


def dumps(body: Any) -> bytes:
    """JSON as careless clients write it; :class:`Token` as it stands."""
    tokens: list[str] = []

    def marked(value: Any) -> Any:
        if isinstance(value, Token):
            tokens.append(value.text)
            return f"@@{len(tokens) - 1}@@"
        if isinstance(value, dict):
            return {key: marked(each) for key, each in value.items()}
        return [marked(each) for each in value] if isinstance(value, list) else value

    text = json.dumps(marked(body))
    for at, token in enumerate(tokens):
        text = text.replace(f'"@@{at}@@"', token)
    return text.encode()


def ask(edge: str, served: Served, prompt: Any = None, **fields: Any) -> Answer:
    """One request to its end. ``prompt``: text, or token ids; else ``messages`` for a chat.

    ``fields`` are those of both edges: parameters, ``priority``, ``cache_salt``, ``messages``.
    """
    if edge.startswith("http"):
        return _ask_http(served, prompt, fields, stream=edge.endswith("stream"))
    return _ask_wire(served, prompt, fields, stream=edge.endswith("stream"))


def post(url: str, content: bytes, **headers: str) -> httpx2.Response:
    """One POST of JSON, whatever it is."""
    given = {"Content-Type": "application/json", **headers}
    return HTTP.post(url, content=content, headers=given)


def health(served: Served) -> tuple[int, Frame]:
    """What ``/health`` says: its status, and its body."""
    got = HTTP.get(f"{served.http}/health")
    return got.status_code, got.json()


def events(text: str) -> list[Frame]:
    """The objects of a stream that came to its end."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines), text
    assert lines[-1] == "data: [DONE]", text[-300:]
    assert lines.count("data: [DONE]") == 1
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def _ask_http(served: Served, prompt: Any, fields: Frame, *, stream: bool) -> Answer:
    body = dict(fields)
    path = "/v1/chat/completions"
    if "messages" not in fields:
        path = "/v1/completions"
        body["prompt"] = prompt
        body.setdefault("max_tokens", None)
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    got = post(served.http + path, dumps({key: body[key] for key in body}))
    if got.status_code != 200:
        return _error(got.status_code, got.json()["error"])
    if not stream:
        return _whole(got.json())
    assert got.headers["content-type"].startswith("text/event-stream")
    return _streamed(events(got.text))


def _error(status: int, error: Frame) -> Answer:
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    return Answer(status, message=error["message"], code=error["code"], param=error["param"])


def _whole(body: Frame) -> Answer:
    answer = Answer(200)
    assert [choice["index"] for choice in body["choices"]] == list(range(len(body["choices"])))
    for choice in body["choices"]:
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        logprobs = _values(choice["logprobs"])
        answer.choices.append(
            Choice([text], logprobs, choice["finish_reason"], choice["stop_reason"])
        )
    _count(answer, body["usage"])
    return answer


def _streamed(chunks: list[Frame]) -> Answer:
    answer = Answer(200)
    if "error" in chunks[-1]:
        return _error(class_of(chunks[-1]["error"]["code"]).http_status, chunks[-1]["error"])
    *chunks, last = chunks
    assert last["choices"] == []
    choices: dict[int, Choice] = {}
    for chunk in chunks:
        assert (chunk["id"], chunk["created"]) == (last["id"], last["created"])
        assert "usage" not in chunk
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], Choice())
            assert choice.finish_reason is None, "nothing follows the end of a choice"
            text = part["text"] if "text" in part else part["delta"].get("content", "")
            choice.pieces += [text] if text else []
            choice.logprobs += _values(part["logprobs"])
            choice.finish_reason = part["finish_reason"]
            choice.stop_reason = part["stop_reason"]
    assert sorted(choices) == list(range(len(choices)))
    answer.choices = [choices[index] for index in sorted(choices)]
    _count(answer, last["usage"])
    return answer


def _values(logprobs: Frame | None) -> list[float]:
    if logprobs is None:
        return []
    if "content" in logprobs:
        return [entry["logprob"] for entry in logprobs["content"]]
    return list(logprobs["token_logprobs"])


def _count(answer: Answer, usage: Frame) -> None:
    answer.prompt_tokens = usage["prompt_tokens"]
    answer.completion_tokens = usage["completion_tokens"]


def _ask_wire(served: Served, prompt: Any, fields: Frame, *, stream: bool) -> Answer:
    outside = ("messages", "priority", "cache_salt")
    frame: Frame = {name: fields[name] for name in outside if name in fields}
    frame["params"] = {name: fields[name] for name in fields if name not in outside}
    if prompt is not None:
        frame["prompt_tokens" if isinstance(prompt, list) else "prompt"] = prompt
    sent = {"type": "generate", "id": "a", "stream": stream, **frame}
    with wire(served.socket) as client:
        client.send_raw(dumps(sent).decode())
        frames = client.rest("a")
    if frames[-1]["type"] == "error":
        error = frames[-1]
        return Answer(
            class_of(error["code"]).http_status, message=error["message"], code=error["code"]
        )
    return _done(frames)


def _done(frames: list[Frame]) -> Answer:
    done = frames[-1]
    answer = Answer(200)
    for index, end in enumerate(done["choices"]):
        assert end["index"] == index
        deltas = [f for f in frames if f["type"] == "delta" and f["index"] == index] or [end]
        logprobs = [entry["logprob"] for d in deltas for entry in d.get("logprobs", [])]
        pieces = [delta["text"] for delta in deltas if delta["text"]]
        answer.choices.append(
            Choice(pieces, logprobs, end["finish_reason"], end.get("stop_reason"))
        )
    _count(answer, done["usage"])
    return answer


def together(calls: list[Callable[[], Answer]]) -> list[Answer]:
    """All at once; the answers in the order of the calls."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def refused(answer: Answer, edge: str, name: str) -> None:
    """A bad request that names the field."""
    assert answer.status == 400, answer
    assert name in answer.message
    assert len(answer.message) < 400
    assert edge not in HTTP_EDGES or str(answer.param).startswith(name), answer
