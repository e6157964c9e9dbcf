"""The ``state`` feed over the wire: what frames add up to is what the status counts."""

from __future__ import annotations

import base64
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from pagedd.protocol import State
from pagedd_tui.model import Model
from tests.server.harness import Client, Daemon, Frame, new_id, until

Start = Callable[..., Daemon]
STATES = ("free", "owned", "shared", "cached")
TIGHT = {"num_pages": 24, "num_host_pages": 16, "page_size": 4, "max_num_seqs": 12, "step_s": 0.002}


@pytest.fixture(params=["json", "msgpack"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    with daemon.client(json_frames=request.param == "json") as client:
        yield client
    daemon.until_quiet()


def state_of(frame: Frame) -> State:
    """The frame as the dashboard decodes it."""
    return msgspec.convert(frame, State, builtin_types=(bytes,)) if _binary(frame) else _json(frame)


def _binary(frame: Frame) -> bool:
    return isinstance(frame["pages"]["cells"], bytes)


def _json(frame: Frame) -> State:
    parts = {
        name: {**frame[name], "cells": base64.b64decode(frame[name]["cells"])}
        for name in ("pages", "host_pages")
    }
    return msgspec.convert({**frame, **parts}, State, builtin_types=(bytes,))


class Watcher:
    """A subscriber that folds what it gets."""

    def __init__(self, client: Client, **fields: Any) -> None:
        self.client = client
        self.model = Model()
        self.frames: list[State] = []
        client.send(type="subscribe", topic="state", **fields)

    def take(self, frame: Frame) -> State:
        state = state_of(frame)
        assert self.model.follows(state)
        self.model.take(state)
        self.frames.append(state)
        return state

    def until_status(self) -> Frame:
        """Ask for the status; fold what comes before it."""
        self.client.send(type="status")
        while (frame := self.client.receive())["type"] != "status":
            if frame["type"] == "state":
                self.take(frame)
        return frame

    def next(self) -> State:
        return self.take(self.client.until("state"))


def compare(model: Model, status: Frame) -> None:
    """Every count of the picture is that of the status of the same moment."""
    pages, host = status["pages"], status["host_pages"]
    assert model.pages.counts == [pages[name] for name in STATES]
    assert model.host.counts == [host["free"], host["swapped"], 0, host["cached"]]
    rows = model.rows.values()
    states = Counter(row.state for row in rows)
    assert states["swapped"] == status["requests"]["swapped"]
    assert len({row.handle for row in rows}) == (
        status["requests"]["running"] + status["requests"]["waiting"]
    )
    counters = model.counters
    assert counters.num_requests_running == status["requests"]["running"]
    assert counters.num_requests_waiting == status["requests"]["waiting"]
    assert counters.gpu_cache_usage == status["gpu_cache_usage"]
    assert counters.preemptions_total == status["num_preemptions"]
    held = {owner for owner in model.pages.owners if owner is not None}
    assert held <= set(model.rows)
    for page, owner in enumerate(model.pages.owners):
        assert (owner is None) == (model.pages.states[page] in (0, 3)), "held pages have an owner"


def test_a_keyframe_comes_first_and_then_changes(client: Client, daemon: Daemon) -> None:
    watcher = Watcher(client, hz=30)
    first = watcher.next()
    assert first.key
    assert len(first.pages.cells) == client.hello["num_pages"]
    with daemon.client() as other:
        other.generate(new_id(), prompt="abc", params={"max_tokens": 4})
    compare(watcher.model, watcher.until_status())
    numbers = [frame.frame for frame in watcher.frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert not all(frame.key for frame in watcher.frames)


def test_frames_say_what_the_status_says_under_pressure(start: Start) -> None:
    daemon = start(engine=TIGHT, config={"preemption_mode": "swap"})
    with daemon.client(json_frames=False) as client, daemon.client() as other:
        watcher = Watcher(client, hz=30)
        watcher.next()
        ids = [new_id() for _ in range(40)]
        for number, id in enumerate(ids):
            params = {"max_tokens": 10 + number % 7, "ignore_eos": True, "n": (4, 1, 1)[number % 3]}
            prompt = "abcabcabc" * (1 + number % 2)
            other.send(type="generate", id=id, prompt=prompt, params=params)
        waited = swapped = shared = 0
        status = watcher.until_status()
        while status["requests"]["finished_total"] < len(ids):
            compare(watcher.model, status)
            waited = max(waited, status["requests"]["waiting"])
            swapped = max(swapped, status["requests"]["swapped"])
            shared = max(shared, status["pages"]["shared"])
            status = watcher.until_status()
        assert waited > 3
        assert shared > 0
        assert swapped > 0
        assert watcher.model.rows == {}


def test_who_does_not_read_gets_a_keyframe_when_it_reads_on(start: Start) -> None:
    daemon = start(engine={"num_pages": 4096, "page_size": 4})
    with daemon.client() as lazy, daemon.client() as other:
        watcher = Watcher(lazy, hz=30)
        watcher.next()
        for _ in range(30):
            other.generate(new_id(), prompt="abc" * 9, params={"max_tokens": 20})
        status = watcher.until_status()
        compare(watcher.model, status)


def test_after_unsubscribing_nothing_comes(client: Client, daemon: Daemon) -> None:
    watcher = Watcher(client)
    watcher.next()
    client.send(type="unsubscribe", topic="state")
    client.status()
    client.generate(new_id(), prompt="abc", params={"max_tokens": 4})
    client.send(type="status")
    assert client.receive()["type"] == "status"


def test_subscribing_again_begins_anew_at_the_new_rate(client: Client) -> None:
    watcher = Watcher(client, hz=0.1)
    watcher.next()
    again = Watcher(client, hz=30)
    assert again.next().key
    client.generate(new_id(), prompt="abc", params={"max_tokens": 4})


def test_a_new_engine_begins_with_a_keyframe(start: Start) -> None:
    daemon = start()
    with daemon.client() as client:
        watcher = Watcher(client, hz=30)
        assert watcher.next().key
        pid = client.status()["engine_pid"]
        os.kill(pid, signal.SIGKILL)
        daemon.until_state("ready")
        until(lambda: watcher.next().key, "the picture of the new engine")
        compare(watcher.model, watcher.until_status())


@pytest.mark.parametrize("hz", [0.0, 31, -1, "fast"])
def test_rates_out_of_range_are_refused(client: Client, hz: object) -> None:
    client.send(type="subscribe", topic="state", hz=hz)
    answer = client.receive()
    assert (answer["type"], answer["code"]) == ("error", "bad_request")
    assert "hz" in answer["message"]


def test_an_explanation_has_the_page_tables_and_the_text(client: Client) -> None:
    id = new_id()
    client.send(
        type="generate",
        id=id,
        prompt="abc" * 20,
        params={"max_tokens": 300, "ignore_eos": True, "n": 2},
    )
    client.until("delta", id=id)
    client.send(type="explain", id=id)
    explanation = client.until("explanation")
    tables = explanation["tables"]
    assert [table["index"] for table in tables] == [0, 1]
    first, second = (table["pages"] for table in tables)
    common = set(first) & set(second)
    assert common
    for table in tables:
        assert [refs > 1 for refs in table["refs"]] == [page in common for page in table["pages"]]
    assert any(explanation["text"])
    client.send(type="cancel", id=id)
    client.until("done", id=id)
