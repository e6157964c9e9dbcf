"""What the daemon must know to start: already checked values, whatever source they came from."""

from __future__ import annotations

from msgspec import Struct

from pagedd.engine.messages import EngineConfig

DEFAULT_LISTEN = "127.0.0.1:7411"
DEFAULT_HTTP = "127.0.0.1:8411"
DEFAULT_OUTBOX_BYTES = 4 * 1024 * 1024
DEFAULT_DRAIN_TIMEOUT_S = 5.0
DEFAULT_LOG_MAX_SIZE = 5 * 1024 * 1024
DEFAULT_LOG_KEEP = 3


class TlsFiles(Struct, frozen=True):
    """What TCP is encrypted with, in PEM. ``tls.server_context`` makes a context of it."""

    cert: str
    key: str | None = None  # None: in the same file


class DaemonSettings(Struct, frozen=True, kw_only=True):
    """Times in seconds, sizes in bytes."""

    socket: str  # path of the Unix socket
    engine: EngineConfig
    listen: str | None = DEFAULT_LISTEN  # HOST:PORT, port 0 takes a free one; None: no TCP
    api_keys: tuple[str, ...] = ()
    tls: TlsFiles | None = None  # None: TCP is not encrypted
    allow_origin: tuple[str, ...] = ()
    http: str | None = DEFAULT_HTTP  # HOST:PORT of the HTTP edge; None: there is none
    allow_host: tuple[str, ...] = ()
    max_connections: int = 2048  # over HTTP
    http_body_limit: int = 16 * 1024 * 1024
    metrics_namespace: str = "pagedd"  # or "vllm", "pagedd_"
    outbox_bytes: int = DEFAULT_OUTBOX_BYTES
    drain_timeout: float = DEFAULT_DRAIN_TIMEOUT_S
    request_timeout: float | None = None  # of requests that bring none; None: no limit
    log_level: str = "info"  # debug, info, warning or error
    log_file: str | None = None  # None: standard error
    log_max_size: int = DEFAULT_LOG_MAX_SIZE  # at which another file is begun; 0: never
    log_keep: int = DEFAULT_LOG_KEEP  # files put aside that are kept
    ready_fd: int | None = None  # gets "ready\n", or one line that says why not; then it is closed

    @property
    def max_queue(self) -> int:
        """Requests that may wait; more get ``queue_full``."""
        return self.engine.max_queue
