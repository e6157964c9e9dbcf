"""Who runs on a socket: read from the lock file, without connecting."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import NamedTuple

from pagedd.errors import UsageError


class Holder(NamedTuple):
    """The process that holds the lock; pid 0 while it is just writing its name."""

    pid: int
    version: str


def lock_holder(socket: Path) -> Holder | None:
    """The daemon of this socket, or None when nobody holds its lock.

    A file that was left behind means nothing: only a held lock does. Errors: ``UsageError``.
    """
    path = socket.with_name(socket.name + ".lock")
    try:
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(file.read(4096))
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _read(data: bytes) -> Holder:
    try:
        content = json.loads(data)
        return Holder(int(content["pid"]), str(content.get("version", "")))
    except (ValueError, TypeError, KeyError):
        return Holder(0, "")
