"""The daemon's log: standard error, or a file that is rotated."""

from __future__ import annotations

import logging
import re
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from pagedd.errors import UsageError

FILE_BYTES = 5 * 1024 * 1024
FILES_KEPT = 3
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Formatter(logging.Formatter):
    """Text from models and clients is data: its control characters are written as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", super().format(record))


class _Handshakes(logging.Filter):
    """Drops the traceback that websockets logs for every client that breaks off its handshake."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage() != "opening handshake failed"


def configure(level: str, log_file: str | None) -> None:
    """Set up the root logger, once per process. Raises UsageError if the file cannot be opened."""
    handler: logging.Handler
    if log_file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            Path(log_file).parent.mkdir(parents=True, exist_ok=True)
            handler = RotatingFileHandler(
                log_file, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8"
            )
        except OSError as error:
            raise UsageError(f"cannot write the log {log_file}: {error.strerror}") from None
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.getLogger("websockets.server").addFilter(_Handshakes())
    logging.getLogger("websockets").setLevel(logging.WARNING)
