"""Load over both edges for the kill tests: many requests, and how each of them ended."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from random import Random
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import unix_connect

from tests.engine.fake_engine import SLOW
from tests.server.harness import Frame

# What a cause may do to a request; anything else, and no end at all, is a fault.
ENDS = {"done", "engine_failed", "shutting_down", "queue_full", "deadline_exceeded", "closed"}
WIRES, HTTPS = 3, 2  # connections
AT_ONCE = 4  # requests of one websocket


class Load:
    """Runs in threads until ``stop``; afterwards ``left`` counts the requests without an end.

    ``seen`` counts what came, so that a test can act in the middle of it.
    """

    def __init__(self, socket: str, http: str | None, seed: int) -> None:
        self.ends: Counter[str] = Counter()
        self.faults: list[str] = []
        self.seen = 0
        self._socket, self._http = socket, http
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._open = 0
        random = Random(seed)
        works = [self._wire] * WIRES + [self._post] * (HTTPS if http else 0)
        self._threads = [
            threading.Thread(target=self._run, args=(work, Random(random.random())), daemon=True)
            for work in works
        ]
        for thread in self._threads:
            thread.start()

    @property
    def left(self) -> int:
        """Requests that are open."""
        return self._open

    def stop(self, limit_s: float) -> float:
        """Ask for nothing more and wait until all has ended. Seconds that it took."""
        began = time.monotonic()
        self._stopping.set()
        for thread in self._threads:
            thread.join(max(0.0, began + limit_s - time.monotonic()))
        assert not any(thread.is_alive() for thread in self._threads), (
            f"{self.left} requests have not ended {limit_s:g} s after the cause: {self.ends}"
        )
        assert not self.faults, self.faults
        assert self.left == 0
        return time.monotonic() - began

    def _run(self, work: Any, random: Random) -> None:
        while not self._stopping.is_set():
            try:
                work(random)
            except (OSError, EOFError, WebSocketException, http.client.HTTPException):
                self._stopping.wait(0.02)  # nobody is there: the daemon may come back
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}")
                return

    def _begin(self, count: int = 1) -> None:
        with self._lock:
            self._open += count

    def _end(self, how: str, count: int = 1) -> None:
        with self._lock:
            self._open -= count
            self.ends[how] += count
            self.seen += 1
        if how not in ENDS:
            self.faults.append(f"a request ended with {how}")

    def _wire(self, random: Random) -> None:
        """One connection with several requests at once, each of them followed by another."""
        with unix_connect(self._socket, uri="ws://localhost/", compression=None) as wire:
            open: dict[str, int] = {}  # id → the last seq
            begun = 0
            try:
                while open or not self._stopping.is_set():
                    while len(open) < AT_ONCE and not self._stopping.is_set():
                        begun += 1
                        open[f"w{begun}"] = 0
                        self._begin()
                        wire.send(json.dumps(_frame(f"w{begun}", random)))
                    if open:
                        self._take(json.loads(wire.recv()), open)
            except (OSError, EOFError, WebSocketException):
                self._end("closed", len(open))

    def _take(self, frame: Frame, open: dict[str, int]) -> None:
        self.seen += 1
        id = frame.get("id")
        if frame["type"] == "delta":
            open[id] += 1
            if frame["seq"] != open[id]:
                self.faults.append(f"delta {frame['seq']} came as number {open[id]}")
        elif frame["type"] in ("done", "error") and id is not None:
            if id not in open:
                self.faults.append(f"a second end: {frame}")
            del open[id]
            self._end(frame.get("code", "done"))

    def _post(self, random: Random) -> None:
        """One request over HTTP, in a connection of its own."""
        assert self._http is not None
        stream = random.random() < 0.6
        body = {
            "prompt": "over http " * random.randint(1, 4),
            "max_tokens": random.randint(1, 40),
            "stream": stream,
        }
        connection = http.client.HTTPConnection(self._http, timeout=60)
        sent = False
        self._begin()
        try:
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            sent = True
            answer = connection.getresponse()
            self._end(_end_of(answer.status, answer.read(), stream=stream))
        except (OSError, EOFError, http.client.HTTPException):
            self._end("closed")
            if not sent:
                raise
        finally:
            connection.close()


def _frame(id: str, random: Random) -> Frame:
    params: Frame = {"max_tokens": random.randint(1, 60)}
    if random.random() < 0.2:
        params["seed"] = SLOW
        params["max_tokens"] = 20
    if random.random() < 0.2:
        params["n"] = 2
    frame: Frame = {
        "type": "generate",
        "id": id,
        "prompt": "text " * random.randint(1, 12),
        "params": params,
        "priority": random.randint(-1, 1),
        "stream": random.random() < 0.7,
    }
    if random.random() < 0.1:
        frame["timeout_s"] = random.uniform(0.01, 0.5)
    return frame


def _end_of(status: int, body: bytes, *, stream: bool) -> str:
    text = body.decode()
    if status != 200:
        return str(json.loads(text)["error"]["code"])
    if not stream:
        return "done" if json.loads(text)["choices"] else "no choices"
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    if not events or events[-1] != "[DONE]":
        return "closed"
    last = json.loads(events[-2])
    return str(last["error"]["code"]) if "error" in last else "done"
