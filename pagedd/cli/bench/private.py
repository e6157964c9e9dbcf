"""Daemons on sockets of their own, for the time of a measurement."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from pagedd.cli.flags import given_flags
from pagedd.cli.launch import end, launch
from pagedd.cli.start import ensure_model, flags_again
from pagedd.config import Config
from pagedd.errors import PageddError, UsageError

# Memory that must be free for a further idle daemon, as a multiple of what the largest takes.
ROOM = 2


def refuse_flags(args: argparse.Namespace, fixed: Sequence[str]) -> None:
    """Errors: ``UsageError`` for a flag that a bench sets itself."""
    for name in given_flags(args):
        if name in fixed:
            why = "starts private daemons" if name == "url" else "sets this itself"
            raise UsageError(f"--{name}: pagedd bench {args.what} {why}")


class PrivateDaemons:
    """Starts daemons when they are first asked for; when the block is left all have ended.

    Those that are not asked for are idle: they cost memory, but no time. When there is none left
    for one more, the others end first, and start again when it is their turn.
    """

    def __init__(self, args: argparse.Namespace, config: Config) -> None:
        self._flags = [
            flag
            for flag in flags_again(args)
            if not flag.startswith(("--url", "--socket", "--listen", "--http"))
        ]
        self._config = config
        self.api_key: str | None = config.key
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._largest = 0  # bytes

    def __enter__(self) -> Self:
        ensure_model(self._config)
        self._folder = tempfile.TemporaryDirectory(prefix="pagedd-bench-")
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()
        self._folder.cleanup()

    def url(self, name: str, options: Mapping[str, object]) -> str:
        """The address of the daemon ``name``, which has ``options`` besides the flags given.

        Errors: those of ``launch``.
        """
        socket = Path(self._folder.name) / f"{name}.sock"
        if name not in self._running:
            if self._running and not self._room():
                self._end_all()
            flags = [*self._flags, f"--socket={socket}", "--listen=off", "--http=off"]
            flags += [f"--{option}={value}" for option, value in options.items()]
            log = Path(self._folder.name) / f"{name}.log"
            try:
                daemon = launch(flags, log, own_session=False)
            except PageddError:
                if not self._running:
                    raise
                # the idle ones may have what it lacks, such as memory of the GPU
                self._end_all()
                daemon = launch(flags, log, own_session=False)
            self._running[name] = daemon
        return f"unix:{socket}"

    def _room(self) -> bool:
        import psutil

        for daemon in self._running.values():
            with suppress(psutil.Error):  # it has died: whoever asks for it next will hear
                whole = psutil.Process(daemon.pid)
                processes = [whole, *whole.children(recursive=True)]
                size = sum(each.memory_info().rss for each in processes)
                self._largest = max(self._largest, size)
        return bool(psutil.virtual_memory().available > ROOM * self._largest)

    def _end_all(self) -> None:
        running, self._running = self._running, {}
        for daemon in running.values():
            daemon.terminate()
        for daemon in running.values():
            end(daemon)
