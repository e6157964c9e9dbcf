"""A daemon that speaks the protocol on a Unix socket and does what a test tells it to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, unix_serve

from pagedd import protocol

LEDGER = protocol.Ledger(0.1, 1.0, 2.0, 0.0, 0, 1, 0.5, 0, 0)


def status(**changes: Any) -> protocol.Status:
    """A status of a daemon that has something to show."""
    whole = protocol.Status(
        version="0.1.0",
        boot_id="0123456789abcdef",
        state="ready",
        pid=4242,
        engine_pid=4243,
        uptime_s=3725.0,
        model="fake-model",
        device="cpu",
        dtype="bfloat16",
        page_size=16,
        max_model_len=2048,
        requests=protocol.RequestCounts(3, 2, 0, 10, 1, 0),
        pages=protocol.PageCounts(100, 40, 20, 30, 10),
        host_pages=protocol.HostPageCounts(0, 0, 0, 0),
        preemptions=protocol.PreemptionCounts(0, 1),
        recomputed_tokens=12,
        swapped_bytes=0,
        prefix=protocol.PrefixCounts(200, 50),
        tokens=protocol.TokenCounts(1000, 2000, 123.4),
        step_ms={"plan": 0.1, "execute": 10.0},
        connections=1,
        endpoints=["unix:/run/fake.sock"],
        gpu_cache_usage=0.408,
    )
    return msgspec.structs.replace(whole, **changes)


@dataclass
class FakeDaemon:
    """``texts`` are the deltas of every answer; ``hold`` keeps the request open after them until it
    is cancelled; the last of them waits for ``gate``; ``refuse`` answers with this error instead;
    ``drop`` ends the connection after the deltas. ``received`` gets every frame of a client, and
    None when a connection ends."""

    path: Path
    texts: list[str] = field(default_factory=lambda: ["Hel", "lo"])
    hold: bool = False
    gate: threading.Event | None = None
    reasons: list[str] = field(default_factory=list)  # it is preempted for them, and comes back
    refuse: protocol.Error | None = None
    refuse_chat: bool = False
    fail: protocol.Error | None = None  # after the deltas
    drop: bool = False
    prompt_tokens: int = 5
    features: list[str] = field(default_factory=lambda: ["generate", "chat"])
    max_model_len: int = 2048
    http_status: int | None = None
    now: Callable[[], protocol.Status] = status
    explanations: dict[str, protocol.Explanation] = field(default_factory=dict)
    past: list[protocol.Event] = field(default_factory=list)
    # what happens after each question with a ref, which is how a command finds the past's end
    future: list[list[protocol.Event]] = field(default_factory=list)
    received: queue.Queue[protocol.ClientFrame | None] = field(default_factory=queue.Queue)

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    def next(self, kind: type[Any]) -> Any:
        """The next frame of this kind that a client sends; NoneType: the end of a connection."""
        while True:
            frame = self.received.get(timeout=30)
            if isinstance(frame, kind):
                return frame

    @contextmanager
    def serving(self) -> Iterator[FakeDaemon]:
        server: Server = unix_serve(
            self._serve,
            str(self.path),
            subprotocols=[protocol.SUBPROTOCOL_MSGPACK],
            compression=None,
            process_request=self._handshake,
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()

    def _handshake(self, connection: ServerConnection, request: Any) -> Any:
        if self.http_status is None:
            return None
        return connection.respond(HTTPStatus(self.http_status), "refused\n")

    def _serve(self, connection: ServerConnection) -> None:
        def send(frame: protocol.ServerFrame) -> None:
            # a client that has left is heard to its last frame, though nothing reaches it any more
            with suppress(ConnectionClosed):
                connection.send(msgspec.msgpack.encode(frame))

        try:
            limits = protocol.Limits(1 << 24, 1024, 64, 64, 20, 1000)
            size = self.max_model_len
            send(protocol.Hello(1, "boot", "fake-model", size, 16, 100, 0, limits, self.features))
            for data in connection:
                frame = msgspec.msgpack.decode(data, type=protocol.ClientFrame)
                self.received.put(frame)
                self._answer(frame, send, connection)
        except ConnectionClosed:
            pass
        finally:
            self.received.put(None)

    def _answer(
        self,
        frame: protocol.ClientFrame,
        send: Callable[[protocol.ServerFrame], None],
        connection: ServerConnection,
    ) -> None:
        match frame:
            case protocol.StatusRequest(ref=ref):
                send(msgspec.structs.replace(self.now(), ref=ref or msgspec.UNSET))
                if ref is not None:
                    self._feed(send, connection)
            case protocol.Cancel(id=id) if not id.startswith("#"):
                send(self._done(id, "cancelled", 1))
            case protocol.Cancel(id=id) | protocol.Reprioritize(id=id):
                if id not in self.explanations:
                    send(_not_found(id))
            case protocol.Explain(id=id):
                send(self.explanations.get(id) or _not_found(id))
            case protocol.Subscribe(history=history):
                if self.refuse is not None:
                    send(self.refuse)
                for event in self.past[len(self.past) - history :]:
                    send(event)
            case protocol.Unsubscribe():
                pass
            case protocol.Generate():
                self._generate(frame, send, connection)
            case _:
                raise AssertionError(f"no command sends {frame}")

    def _feed(
        self, send: Callable[[protocol.ServerFrame], None], connection: ServerConnection
    ) -> None:
        if not self.future:
            return
        for event in self.future.pop(0):
            send(event)
        if self.drop:
            connection.close(1001, "gone")

    def _generate(
        self,
        frame: protocol.Generate,
        send: Callable[[protocol.ServerFrame], None],
        connection: ServerConnection,
    ) -> None:
        refusal = self.refuse
        if self.refuse_chat and frame.messages is not None:
            refusal = protocol.Error("bad_request", "this model has no chat template", False)
        if refusal is not None:
            send(msgspec.structs.replace(refusal, id=frame.id))
            return
        send(protocol.Accepted(frame.id, 0, self.prompt_tokens))
        send(protocol.Started(frame.id, 0, 0.1))
        for reason in self.reasons:
            send(protocol.Preempted(frame.id, "swap", reason, 9))
            send(protocol.Resumed(frame.id, "swap", "it came back", 9))
        if frame.stream:
            for seq, text in enumerate(self.texts, 1):
                if self.gate is not None and seq == len(self.texts):
                    assert self.gate.wait(30)
                send(protocol.Delta(frame.id, 0, seq, text, [seq]))
        if self.drop:
            connection.close(1011, "gone")
        elif self.fail is not None:
            send(msgspec.structs.replace(self.fail, id=frame.id))
        elif not self.hold:
            send(self._done(frame.id, "stop", frame.params.n, stream=frame.stream))

    def _done(self, name: str, reason: str, n: int, *, stream: bool = True) -> protocol.Done:
        text: Any = msgspec.UNSET if stream else "".join(self.texts)
        tokens: Any = msgspec.UNSET if stream else list(range(1, len(self.texts) + 1))
        choices = [protocol.Choice(i, reason, text=text, tokens=tokens) for i in range(n)]
        usage = protocol.Usage(self.prompt_tokens, len(self.texts) * n, 0)
        ledger = msgspec.structs.replace(LEDGER, preemptions=len(self.reasons), preempted_ms=45.2)
        return protocol.Done(name, choices, usage, ledger)


def _not_found(name: str) -> protocol.Error:
    return protocol.Error("request_not_found", f"there is no request {name!r}", False, ref=name)
