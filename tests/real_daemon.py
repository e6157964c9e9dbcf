"""Daemons with a real model, and what they say about a request, frame by frame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import unix_connect

from pagedd.protocol import SUBPROTOCOL_JSON
from tests.cli.terminal import environment, run, with_built_kernels
from tests.server.harness import Client, Frame, until


@contextmanager
def daemon(home: Path, model: str, *flags: str) -> Iterator[str]:
    """A daemon on a socket of its own; gives its address."""
    socket = home / "s" / "pagedd.sock"
    env = with_built_kernels(environment(home, PAGEDD_SOCKET=str(socket)))
    started = run("start", "--detach", "--listen=off", f"--model={model}", *flags, env=env)
    assert started.returncode == 0, started.stderr
    try:
        yield f"unix:{socket}"
    finally:
        stopped = run("stop", env=env)
        assert stopped.returncode == 0, stopped.stderr


@contextmanager
def wire(url: str) -> Iterator[Client]:
    """A connection that speaks frames."""
    with unix_connect(
        url.removeprefix("unix:"),
        uri="ws://localhost/",
        subprotocols=[SUBPROTOCOL_JSON],
        compression=None,
        max_size=None,
    ) as socket:
        yield Client(socket, json_frames=True)


def quiet(client: Client) -> Frame:
    """Wait until nothing runs or waits; then both pools must be whole. The status."""

    def idle() -> Frame | None:
        status = client.status()
        requests = status["requests"]
        return None if requests["running"] or requests["waiting"] else status

    status: Frame = until(idle, "the end of all requests")
    assert status["requests"]["swapped"] == 0
    pages, host = status["pages"], status["host_pages"]
    assert pages["free"] + pages["cached"] == pages["total"]
    assert (pages["owned"], pages["shared"]) == (0, 0)
    assert host["free"] + host["cached"] == host["total"]
    assert host["swapped"] == 0
    return status


class Stream:
    """One request's frames from ``accepted`` to ``done``, and the rules that they keep."""

    def __init__(self, frames: Iterable[Frame], n: int = 1) -> None:
        self.frames = list(frames)
        self.preemptions = self._count("preempted")
        accepted, *_, done = self.frames
        assert accepted["type"] == "accepted", self.frames
        assert done["type"] == "done", done
        assert self._count("accepted") == self._count("started") == self._count("done") == 1
        assert not self._count("error")
        deltas = self.marks("delta")
        assert [frame["seq"] for frame in deltas] == list(range(1, len(deltas) + 1))
        self.done = done
        self.cached_tokens: int = done["usage"]["cached_tokens"]
        self.choices = [self._choice(deltas, index) for index in range(n)]
        self._check_usage(accepted["prompt_tokens"])
        self._check_marks(n)

    @property
    def texts(self) -> list[str]:
        """The joined deltas of each choice."""
        return [choice["text"] for choice in self.choices]

    @property
    def life_ms(self) -> float:
        """How long the engine had it, phase by phase."""
        ledger = self.done["ledger"]
        phases = ("queued", "prefill", "decode", "preempted")
        return float(sum(ledger[f"{phase}_ms"] for phase in phases))

    def marks(self, type: str) -> list[Frame]:
        """Its frames of one type."""
        return [frame for frame in self.frames if frame["type"] == type]

    def _count(self, type: str) -> int:
        return len(self.marks(type))

    def _choice(self, deltas: list[Frame], index: int) -> Frame:
        mine = [frame for frame in deltas if frame["index"] == index]
        ends = [frame.get("finish_reason") for frame in mine]
        assert [end for end in ends if end] == [ends[-1]], "one reason, with the last delta"
        assert self.done["choices"][index]["finish_reason"] == ends[-1]
        logprobs = [entry for frame in mine for entry in frame.get("logprobs", [])]
        tokens = [token for frame in mine for token in frame["tokens"]]
        if logprobs:
            assert [entry["id"] for entry in logprobs] == tokens
        return {
            "text": "".join(frame["text"] for frame in mine),
            "tokens": tokens,
            "logprobs": logprobs,
            "finish_reason": ends[-1],
        }

    def _check_usage(self, prompt_tokens: int) -> None:
        usage = self.done["usage"]
        assert usage["prompt_tokens"] == prompt_tokens
        assert usage["completion_tokens"] == sum(len(each["tokens"]) for each in self.choices)
        assert 0 <= usage["cached_tokens"] < prompt_tokens

    def _check_marks(self, n: int) -> None:
        """``preempted`` and ``resumed`` come in pairs, each with a sentence; no text between."""
        away = 0
        for frame in self.frames:
            if frame["type"] == "preempted":
                away += 1
                assert away <= n
            elif frame["type"] == "resumed":
                away -= 1
                assert away >= 0
            elif frame["type"] == "delta":
                assert away < n, "text while every choice is away"
            if frame["type"] in ("preempted", "resumed"):
                assert frame["mode"] in ("swap", "recompute")
                assert frame["pages"] >= 0
                assert len(frame["reason"].split()) > 2
        assert away == 0
        ledger = self.done["ledger"]
        assert ledger["preemptions"] == self.preemptions
        assert self.preemptions or ledger["preempted_ms"] == 0

    def check_same(self, other: Stream) -> None:
        """Nothing that a client can see of the answer differs."""
        for key in ("prompt_tokens", "completion_tokens"):
            assert self.done["usage"][key] == other.done["usage"][key]
        for mine, others in zip(self.choices, other.choices, strict=True):
            for key in ("tokens", "text", "finish_reason"):
                assert mine[key] == others[key]
            values = [entry["logprob"] for entry in others["logprobs"]]
            assert [entry["logprob"] for entry in mine["logprobs"]] == pytest.approx(
                values, abs=1e-4
            )


def ask(client: Client, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Stream]:
    """Send all at once; the streams by id."""
    for id, fields in requests.items():
        client.send(type="generate", id=id, **fields)
    frames: dict[str, list[Frame]] = defaultdict(list)
    open = set(requests)
    while open:
        frame = client.receive()
        if frame.get("id") in requests:
            frames[frame["id"]].append(frame)
            if frame["type"] in ("done", "error"):
                open.remove(frame["id"])
    return {id: Stream(frames[id], choices(fields)) for id, fields in requests.items()}


def choices(fields: Mapping[str, Any]) -> int:
    """How many a request asks for."""
    return int(fields.get("params", {}).get("n", 1))
