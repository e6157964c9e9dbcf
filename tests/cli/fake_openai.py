"""A server with OpenAI's ``/v1/completions`` that does what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeOpenAI:
    """``per_event``: tokens in an event. ``shorter``: tokens that each answer lacks. ``status``:
    refuse every request, or all but the first, with this one and ``refusal``. ``dies_after``:
    events until the connection is cut. ``closes``: end it after each answer without a word.
    """

    models: Any = field(
        default_factory=lambda: [
            {"id": "fake", "owned_by": "fakes", "max_model_len": 512, "meta": {"n_vocab": 1000}}
        ]
    )
    per_event: int = 1
    shorter: int = 0
    usage: bool = True
    error: Any = None  # an event of every answer
    streams: bool = True
    status: int = 200
    spare_first: bool = False
    refusal: bytes = b'{"error": {"message": "the prompt is not\\n welcome", "code": 400}}'
    dies_after: int | None = None
    closes: bool = False
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    url: str = ""

    @contextmanager
    def serving(self) -> Iterator[FakeOpenAI]:
        handler = type("Handler", (_Handler,), {"fake": self})
        kind = type("Server", (ThreadingHTTPServer,), {"request_queue_size": 128})
        server = kind(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeOpenAI

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on standard error."""

    def do_GET(self) -> None:
        if self.path != "/v1/models" or self.fake.models is None:
            self._whole(404, "text/plain", b"not found")
            return
        self._whole(200, "application/json", json.dumps({"data": self.fake.models}).encode())

    def do_POST(self) -> None:
        fake = self.fake
        body = self.rfile.read(int(self.headers["content-length"]))
        fake.bodies.append(body)
        fake.headers.append({name.lower(): value for name, value in self.headers.items()})
        fake.connections.add(self.client_address)
        if fake.status != 200 and not (fake.spare_first and len(fake.bodies) == 1):
            self._whole(fake.status, "application/json", fake.refusal)
            return
        if self.path != "/v1/completions" or not fake.streams:
            self._whole(200, "application/json", b'{"choices": []}')
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if not self._stream(json.loads(body)) or fake.closes:
            self.close_connection = True

    def _stream(self, request: dict[str, Any]) -> bool:
        """The events of an answer; False when the connection is to be cut within."""
        fake = self.fake
        count = request["max_tokens"] - fake.shorter
        for number, start in enumerate(range(0, count, fake.per_event)):
            if number == fake.dies_after:
                return False
            text = "ab" * min(fake.per_event, count - start)
            self._event({"choices": [{"text": text, "finish_reason": None}]})
        if fake.error is not None:
            self._event({"error": fake.error})
        self._event({"choices": [{"text": "", "finish_reason": "length"}]})
        if fake.usage:
            prompt = request["prompt"]
            length = len(prompt if isinstance(prompt, list) else prompt.split())
            usage = {"prompt_tokens": length, "completion_tokens": count, "total_tokens": 0}
            self._event({"choices": [], "usage": usage | {"prompt_tokens_details": None}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        return True

    def _event(self, event: dict[str, Any]) -> None:
        data = b": a comment\ndata: " + json.dumps(event).encode() + b"\n\n"
        # in two pieces: an event may come in parts
        self._chunk(data[:20])
        self._chunk(data[20:])

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _whole(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
