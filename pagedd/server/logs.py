"""The daemon's log: standard error, or a file that is put aside when it has its size.

A log that cannot be written stops nothing and is no reason for more lines: what was lost is counted
and told in one line, when there is room again.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import stat
import sys
from pathlib import Path

from pagedd.errors import UsageError

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STDERR = 2
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Formatter(logging.Formatter):
    """Text from models and clients is data: its control characters are written as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", super().format(record))


class _Handshakes(logging.Filter):
    """Drops the traceback that websockets logs for every client that breaks off its handshake."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.getMessage() != "opening handshake failed"


class Log(logging.Handler):
    """Writes whole lines to a file descriptor, without a buffer."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.setFormatter(_Formatter(FORMAT))
        self.fd = fd
        self._lost = 0  # lines
        self._why = ""  # the last of them was
        self._cut = False  # the last line is not whole

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, or count it as lost."""
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        self._write(self._lost_before(record) + line if self._lost else line)

    def dump_stacks(self) -> None:
        """Where every thread of this process is."""
        faulthandler.dump_traceback(self.fd, all_threads=True)

    def reopen(self) -> None:
        """Nothing for standard error."""

    def limit(self, max_size: int, keep: int) -> None:
        """Nothing for standard error."""

    def _lost_before(self, record: logging.LogRecord) -> bytes:
        """The line that tells of those before ``record``."""
        gap = logging.makeLogRecord(
            {
                **record.__dict__,
                "levelname": "WARNING",
                "name": __name__,
                "msg": f"{self._lost} lines could not be written here: {self._why}",
                "args": None,
                "exc_info": None,
                "exc_text": None,
                "stack_info": None,
            }
        )
        return f"{self.format(gap)}\n".encode()

    def _write(self, line: bytes) -> None:
        rest = b"\n" + line if self._cut else line
        try:
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        except OSError as error:
            self._cut = self._cut or len(rest) < len(line)
            self._lost += 1
            self._why = error.strerror or str(error)
        else:
            self._cut, self._lost = False, 0


class LogFile(Log):
    """``max_size`` bytes: then the file becomes PATH.1, that PATH.2, up to ``keep``; 0: never.

    Where standard output and standard error are this file too, they go along with it.
    """

    def __init__(self, path: Path, max_size: int, keep: int) -> None:
        super().__init__(_open(path))
        self._path = path
        self._max_size = max_size
        self._keep = keep
        self._size = os.fstat(self.fd).st_size
        self._shared = [fd for fd in (1, _STDERR) if _same(fd, self.fd)]

    def emit(self, record: logging.LogRecord) -> None:
        """Begin another file first, where it is time."""
        if self._max_size and self._size >= self._max_size:
            self._put_aside()
        elif not self._in_place():
            self.reopen()  # somebody else has put it aside
        super().emit(record)

    def dump_stacks(self) -> None:
        """Where every thread of this process is."""
        super().dump_stacks()
        self._size = os.fstat(self.fd).st_size

    def reopen(self) -> None:
        """Go on in the file that has the name now; in the old one if that cannot be opened."""
        try:
            fd = _open(self._path)
        except OSError:
            return
        for shared in self._shared:
            os.dup2(fd, shared)
        os.close(self.fd)
        self.fd, self._size, self._cut = fd, os.fstat(fd).st_size, False

    def limit(self, max_size: int, keep: int) -> None:
        """Other limits from now on."""
        self._max_size, self._keep = max_size, keep

    def close(self) -> None:
        """At the end of the process."""
        super().close()
        os.close(self.fd)

    def _write(self, line: bytes) -> None:
        super()._write(line)
        self._size += len(line)

    def _in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self.fd))
        except OSError:
            return False

    def _put_aside(self) -> None:
        self._size = 0  # whatever goes wrong is tried again when it has grown as much once more
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            return
        try:
            if self._keep == 0:
                os.truncate(self.fd, 0)
                return
            for number in range(self._keep - 1, 0, -1):
                if self._aside(number).exists():
                    self._aside(number).replace(self._aside(number + 1))
            self._path.replace(self._aside(1))
        except OSError:
            return
        self.reopen()

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def configure(level: str, log_file: str | None, max_size: int = 0, keep: int = 0) -> Log:
    """Set up the root logger, once per process. Raises UsageError if the file cannot be opened."""
    log = Log(_STDERR)
    if log_file is not None:
        try:
            Path(log_file).parent.mkdir(parents=True, exist_ok=True)
            log = LogFile(Path(log_file), max_size, keep)
        except OSError as error:
            raise UsageError(f"cannot write the log {log_file}: {error.strerror}") from None
    root = logging.getLogger()
    if log_file is not None or sys.stderr is not None:
        root.addHandler(log)
    else:
        root.addHandler(logging.NullHandler())
    set_level(level)
    logging.getLogger("websockets.server").addFilter(_Handshakes())
    logging.getLogger("websockets").setLevel(logging.WARNING)
    return log


def set_level(level: str) -> None:
    """Least severity that is logged: debug, info, warning or error."""
    logging.getLogger().setLevel(level.upper())


def say(line: str) -> None:
    """To standard error, whether there is one and it takes it or not."""
    try:
        os.write(_STDERR, f"{line}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        return


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _same(first: int, second: int) -> bool:
    try:
        return os.path.samestat(os.fstat(first), os.fstat(second))
    except OSError:
        return False
