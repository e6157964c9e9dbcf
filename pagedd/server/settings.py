"""What the daemon must know to start: already checked values, whatever source they came from."""

from __future__ import annotations

from msgspec import Struct

from pagedd.engine.messages import EngineConfig

DEFAULT_LISTEN = "127.0.0.1:7411"
DEFAULT_OUTBOX_BYTES = 4 * 1024 * 1024
DEFAULT_DRAIN_TIMEOUT_S = 5.0


class DaemonSettings(Struct, frozen=True, kw_only=True):
    """Times in seconds, sizes in bytes."""

    socket: str  # path of the Unix socket
    engine: EngineConfig
    listen: str | None = DEFAULT_LISTEN  # HOST:PORT, port 0 takes a free one; None: no TCP
    api_keys: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    outbox_bytes: int = DEFAULT_OUTBOX_BYTES
    drain_timeout: float = DEFAULT_DRAIN_TIMEOUT_S
    log_level: str = "info"  # debug, info, warning or error
    log_file: str | None = None  # None: standard error
    ready_fd: int | None = None  # gets "ready\n", or one line that says why not; then it is closed

    @property
    def max_queue(self) -> int:
        """Requests that may wait; more get ``queue_full``."""
        return self.engine.max_queue
