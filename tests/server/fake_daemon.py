"""A daemon over the fake engine: ``python -m tests.server.fake_daemon START``, START being JSON."""

from __future__ import annotations

import sys

import msgspec

from pagedd.daemon import run_daemon
from pagedd.errors import PageddError
from pagedd.server.settings import DaemonSettings


class Start(msgspec.Struct, frozen=True):
    settings: DaemonSettings
    engine: str  # options of the fake engine, JSON
    stall_s: float = 30.0


def main(argv: list[str]) -> int:
    start = msgspec.json.decode(argv[0], type=Start)
    command = (sys.executable, "-m", "tests.engine.fake_engine", start.engine)
    try:
        return run_daemon(start.settings, command=command, stall_s=start.stall_s)
    except PageddError as error:
        print(f"pagedd: {error.message}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
