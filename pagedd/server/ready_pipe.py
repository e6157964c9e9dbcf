"""How ``--detach`` learns that the daemon serves, or why not."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger(__name__)


class ReadyPipe:
    """The write end of the pipe that ``--detach`` reads: one line, then end of file."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        if fd is not None:
            os.set_inheritable(fd, False)

    def write(self, line: str) -> None:
        """The first line counts; later ones have no reader."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            os.write(fd, f"{line}\n".encode())
        except OSError:
            logger.warning("who waited for the daemon's start is gone")
        finally:
            os.close(fd)
