"""A daemon over the fake engine: ``python -m tests.server.fake_daemon START``, START being JSON."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import msgspec

from pagedd.daemon import run_daemon
from pagedd.engine import supervisor
from pagedd.errors import PageddError, UsageError
from pagedd.server.settings import DaemonSettings


class Start(msgspec.Struct, frozen=True):
    settings: DaemonSettings
    engine: str  # options of the fake engine, JSON
    stall_s: float = 30.0
    backoff_s: float = supervisor.BACKOFF_FIRST_S  # before the first new engine; then twice that
    read_again: str | None = None  # a file with the settings that SIGHUP reads, JSON


def read(path: Path) -> DaemonSettings:
    """What would come of flags and files; a text that is no JSON is what is wrong with them."""
    text = path.read_text()
    try:
        return msgspec.json.decode(text, type=DaemonSettings)
    except msgspec.DecodeError:
        raise UsageError(text) from None


def main(argv: list[str]) -> int:
    start = msgspec.json.decode(argv[0], type=Start)
    supervisor.BACKOFF_FIRST_S = start.backoff_s
    command = (sys.executable, "-m", "tests.engine.fake_engine", start.engine)
    try:
        return run_daemon(
            start.settings,
            command=command,
            stall_s=start.stall_s,
            read_again=None if start.read_again is None else partial(read, Path(start.read_again)),
        )
    except PageddError as error:
        print(f"pagedd: {error.message}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
