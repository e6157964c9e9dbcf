"""What the endpoints share: the hub behind them, and the limits in front."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request

from pagedd.errors import BadRequest, ModelNotFound
from pagedd.protocol import Status
from pagedd.server.http.caller import Caller
from pagedd.server.hub import Hub
from pagedd.server.model import Model

MAX_NAME = 64  # characters of a client's name for a request


@dataclass(frozen=True, slots=True)
class Gateway:
    """``outbox_bytes``: unread output of a client; ``body_limit``: bytes of a request."""

    hub: Hub
    get_status: Callable[[], Status]
    outbox_bytes: int
    body_limit: int
    model_name: str  # as it was asked for at the start
    began: int  # when the daemon started, in seconds since 1970

    def admit(self, name: str | None) -> Model:
        """The model, which is the only one. Raises PageddError when no request can be taken now."""
        model = self.hub.admit()
        if name not in (None, self.model_name, model.ready.model):
            raise ModelNotFound(f"model: {name!r} is not served here; {model.ready.model} is")
        return model

    def caller(self) -> Caller:
        """A client of the hub."""
        return Caller(self.hub, self.outbox_bytes)


def request_id(request: Request, prefix: str) -> str:
    """``prefix-NAME``, where the client may give the name as X-Request-Id. Raises BadRequest."""
    name = request.headers.get("x-request-id")
    if name is None:
        name = secrets.token_hex(12)
    elif not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise BadRequest(f"X-Request-Id: 1 to {MAX_NAME} printable characters are allowed")
    return f"{prefix}-{name}"
