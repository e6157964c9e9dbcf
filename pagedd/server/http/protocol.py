"""uvicorn's HTTP/1.1 connection, with limits that it has not: connections, time for what the client
does.

h11 limits the head of a request; the body is limited where it is read.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from pagedd.server.http.answers import ErrorAnswer, ErrorBody
from pagedd.server.http.job import ABORT

HEAD_TIMEOUT_S = 20.0
UNREAD_TIMEOUT_S = 30.0  # in which a client must read something of what waits for it
REFUSED_TIMEOUT_S = 10.0  # for the rest of a body that has been refused
KEEP_ALIVE_S = 75  # longer than clients keep theirs, so that it is they who close
HEAD_BYTES = 64 * 1024
# At a time: a body in chunks of a byte takes a millisecond for some hundred bytes, in which nobody
# else has a turn. asyncio by itself reads 16 times as much.
READ_BYTES = 16 * 1024
MAX_PIPELINED = 1024 * 1024  # bytes after a request that is being answered


class GuardedProtocol(H11Protocol):
    """``max_connections`` is the server's, set on a subclass; beyond it 503 and the end."""

    max_connections = 0
    head_timeout_s = HEAD_TIMEOUT_S
    unread_timeout_s = UNREAD_TIMEOUT_S
    refused_timeout_s = REFUSED_TIMEOUT_S
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _refused_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Count it; time for its first head begins."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # not over TLS
            transport.max_size = READ_BYTES
        if len(self.connections) > self.max_connections:
            message = f"{self.max_connections} connections are open (--max-connections)"
            self._refuse(503, message, "too_many_connections")
        else:
            self._time_the_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for."""
        self._stop_timer()
        for timer in (self._unread_timer, self._refused_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """A request gets the means to cut its connection; the rest of a head gets its time."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            # the request's task begins after this
            extensions: dict[str, Any] = self.scope.setdefault("extensions", {})
            extensions[ABORT] = self.transport.abort
        if self._refused_timer is not None and self.conn.their_state is not h11.SEND_BODY:
            self._refused_timer.cancel()
            self._refused_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._head_timer is None and self.conn.trailing_data[0]:
            self._time_the_head()
        self._notice_the_end()

    def on_response_complete(self) -> None:
        """The rest of a body that was refused is read and forgotten, so that the client gets to
        read the answer; but not for ever."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._refused_timer is None:
            self._refused_timer = self.loop.call_later(self.refused_timeout_s, self.transport.abort)

    def pause_writing(self) -> None:
        """The client must read on."""
        super().pause_writing()
        self._time_the_reader()

    def resume_writing(self) -> None:
        """It did."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP: as JSON, unless an answer has begun."""
        self._refuse(400, "this is no valid HTTP/1.1 request, or its head is too long")

    def shutdown(self) -> None:
        """At the end of the server."""
        self._stop_timer()
        super().shutdown()

    def _notice_the_end(self) -> None:
        """uvicorn stops reading when a pipelined request waits; then nobody would see that the
        client has gone."""
        reading = self.cycle is not None and self.cycle.more_body
        few = len(self.conn.trailing_data[0]) <= MAX_PIPELINED
        if self.flow.read_paused and few and not reading:
            self.flow.resume_reading()

    def _time_the_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(
            self.unread_timeout_s, self._look_after_the_reader, unread
        )

    def _look_after_the_reader(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._time_the_reader()
        else:
            self.transport.abort()

    def _time_the_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._head_is_late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"the request's head did not come within {self.head_timeout_s:g} s")
        else:
            self.transport.close()  # it never said anything

    def _refuse(self, status: int, message: str, code: str = "bad_request") -> None:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        body = msgspec.json.encode(ErrorAnswer(ErrorBody(message, kind, None, code)))
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            response = h11.Response(status_code=status, headers=headers)
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
