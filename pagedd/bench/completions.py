"""An OpenAI-compatible server as the other end of a load: ``/v1/completions``, streamed.

One thread waits on all connections at once, and HTTP is parsed by h11, which does no more than
that: an answer of one token per event must not cost the client what it costs the server. Each
connection is used again for the next request when the server keeps it open.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from typing import Any, Self

import h11
import msgspec

from pagedd import protocol
from pagedd.bench.drive import End, Piece
from pagedd.bench.openai_server import Server
from pagedd.bench.sse import EventReader, Usage, message_of
from pagedd.errors import PageddError, Unauthorized, Unreachable

TIMEOUT_S = 30.0  # for connecting and for sending a request
READ_BYTES = 64 * 1024
BUSY = (429, 500, 503)  # a request that is refused so is counted; any other refusal ends the run

Event = protocol.Error | Piece | End


class CompletionsWire:
    """Takes ``generate`` frames, and gives what comes back as events."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._selector = selectors.DefaultSelector()
        self._idle: list[_Exchange] = []
        self._busy: dict[str, _Exchange] = {}
        self._events: deque[Event] = deque()
        self._encode = msgspec.json.Encoder().encode

    def open(self, count: int) -> None:
        """Connect ``count`` times, so that no request waits for that. Errors: ``Unreachable``."""
        while len(self._idle) < count:
            exchange = self._connect()
            exchange.idled = True
            self._idle.append(exchange)

    def send(self, frame: protocol.ClientFrame) -> None:
        """Errors: ``Unreachable``."""
        assert isinstance(frame, protocol.Generate)
        self._start(frame.id, self._encode(body(frame, self._server.model)))

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next event, or None when none came within ``timeout`` seconds.

        Errors: ``PageddError`` for a refusal of what any request would ask, ``Unreachable`` for a
        lost connection.
        """
        if not self._events:
            for key, _ in self._selector.select(timeout):
                if key.data.socket.fileno() >= 0:  # else it was dropped for one before it
                    self._read(key.data)
        return self._events.popleft() if self._events else None

    def close(self) -> None:
        """Close all connections."""
        for exchange in [*self._idle, *self._busy.values()]:
            exchange.close()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, data: bytes) -> None:
        """Send on a connection that is open already, or on a new one."""
        while self._idle:
            exchange = self._idle.pop()
            if exchange.start(name, data):
                self._busy[name] = exchange
                return
            self._drop(exchange)
        exchange = self._connect()
        if not exchange.start(name, data):
            raise self._lost()
        self._busy[name] = exchange

    def _connect(self) -> _Exchange:
        exchange = _Exchange(self._server)
        self._selector.register(exchange.socket, selectors.EVENT_READ, exchange)
        return exchange

    def _read(self, exchange: _Exchange) -> None:
        try:
            events = exchange.read()
        except (h11.RemoteProtocolError, OSError) as error:
            self._drop(exchange)
            if exchange.name is None:
                return  # the server closes a connection that was idle
            del self._busy[exchange.name]
            if not exchange.stale:
                raise self._lost() from error
            self._start(exchange.name, exchange.sent)
            return
        self._events += events
        if exchange.ended:
            assert exchange.name is not None
            del self._busy[exchange.name]
            if exchange.rest():
                self._idle.append(exchange)
            else:
                self._drop(exchange)

    def _drop(self, exchange: _Exchange) -> None:
        if exchange in self._idle:
            self._idle.remove(exchange)
        self._selector.unregister(exchange.socket)
        exchange.close()

    def _lost(self) -> Unreachable:
        return Unreachable(f"the connection to {self._server.url} was lost in mid-answer")


class _Exchange:
    """A connection, with one request at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        try:
            self.socket = socket.create_connection((server.host, server.port), TIMEOUT_S)
        except OSError as error:
            raise server.unreachable(error) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http = h11.Connection(h11.CLIENT)
        self.idled = False  # the server had a time to close it before the request
        self.name: str | None = None
        self.sent = b""

    def start(self, name: str, data: bytes) -> bool:
        """Send a request; False when the connection is closed."""
        self.name, self.sent = name, data
        self._reader, self._status, self._refusal = EventReader(), 0, b""
        self._usage = Usage()
        self._error: str | None = None
        self.ended = False
        headers = [*self._server.headers, ("content-type", "application/json")]
        headers += [("accept", "text/event-stream"), ("content-length", str(len(data)))]
        target = self._server.path + "/v1/completions"
        request = h11.Request(method="POST", target=target, headers=headers)
        whole = [self._http.send(part) for part in (request, h11.Data(data), h11.EndOfMessage())]
        try:
            self.socket.sendall(b"".join(part for part in whole if part))
        except OSError:
            return False
        return True

    @property
    def stale(self) -> bool:
        """Whether the server may have closed the connection before it saw the request."""
        return self.idled and not self._status

    def read(self) -> list[Event]:
        """What has come. Errors: ``h11.RemoteProtocolError`` and ``OSError`` for a connection that
        ended too early, ``PageddError`` for a refusal."""
        data = self.socket.recv(READ_BYTES)
        if not data and self.name is None:
            raise ConnectionResetError
        self._http.receive_data(data)
        found: list[Event] = []
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            match event:
                case h11.Response():
                    self._begin(event)
                case h11.Data(data=part):
                    self._take(bytes(part), found)
                case h11.EndOfMessage():
                    found.append(self._end())
                    break
                case h11.ConnectionClosed():
                    raise ConnectionResetError
        return found

    def rest(self) -> bool:
        """Be ready for the next request; False when the server ends the connection."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self.name, self.idled = None, True
        return True

    def close(self) -> None:
        self.socket.close()

    def _begin(self, response: h11.Response) -> None:
        self._status = response.status_code
        kind = next((value for name, value in response.headers if name == b"content-type"), b"")
        if self._status == 200 and not kind.startswith(b"text/event-stream"):
            raise PageddError(
                f"{self._server.url} answers without a stream of events, but with "
                f"{kind.decode('latin-1') or 'no content type'}"
            )

    def _take(self, data: bytes, found: list[Event]) -> None:
        if self._status != 200:
            self._refusal += data
            return
        assert self.name is not None
        for chunk in self._reader.feed(data):
            found += [Piece(self.name)] * chunk.pieces
            self._usage = chunk.usage or self._usage
            if chunk.error is not None:
                self._error = message_of(chunk.error)

    def _end(self) -> Event:
        assert self.name is not None
        self.ended = True
        if self._status != 200:
            self._error = self._refused()
        if self._error is not None:
            return protocol.Error("internal", self._error, False, id=self.name)
        details = self._usage.prompt_tokens_details
        cached = None if details is None else details.cached_tokens
        return End(self.name, self._usage.prompt_tokens, cached, self._usage.completion_tokens)

    def _refused(self) -> str:
        """The message for this request. Errors: ``PageddError`` where all would be refused."""
        try:
            said = message_of(msgspec.json.decode(self._refusal))
        except msgspec.MsgspecError:
            said = message_of(self._refusal.decode(errors="replace"))[:200]
        said = f"{self._server.url}/v1/completions answers HTTP {self._status}: {said or 'nothing'}"
        if self._status == 401:
            raise Unauthorized(said)
        if self._status not in BUSY:
            raise PageddError(said)
        return said


def body(frame: protocol.Generate, model: str | None) -> dict[str, Any]:
    """The request, greedy or not, with an answer of exactly so many tokens.

    ``ignore_eos`` is no field of OpenAI's, but vLLM, SGLang and llama.cpp have it by this name.
    """
    params = frame.params
    whole: dict[str, Any] = {
        "prompt": frame.prompt_tokens if frame.prompt is None else frame.prompt,
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "ignore_eos": params.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if params.temperature:
        whole["seed"] = params.seed
    return whole if model is None else {"model": model, **whole}
