"""``pagedd stop``: end the daemon."""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.lock import lock_holder
from pagedd.cli.parser import examples
from pagedd.cli.terminal import say
from pagedd.config import Config
from pagedd.errors import PageddError, UsageError

DESCRIPTION = """\
Stop the daemon and wait until it has ended. Running requests may finish within its drain timeout.
Exit code 0 when no daemon runs any more, also when none ran before."""
EPILOG = examples(
    "pagedd stop",
    "pagedd stop --timeout 60",
    "pagedd stop --url unix:/run/user/1000/other.sock",
)
POLL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long to wait, and which daemon."""
    parser.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="longest wait for its end (default: 30)",
    )
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0 when it has ended; 1 when it still runs after the timeout; 2 usage."""
    config = collect(args)
    if not 0 <= args.timeout <= 86400:
        raise UsageError(f"--timeout: must be from 0 to 86400 seconds, not {args.timeout:g}")
    socket = local_socket(config)
    holder = lock_holder(socket)
    if holder is None:
        say(f"no daemon runs on unix:{socket}")
        return 0
    if holder.pid <= 1:
        raise PageddError(f"the daemon on unix:{socket} is just starting: try again")
    try:
        os.kill(holder.pid, signal.SIGTERM)
    except ProcessLookupError:
        return 0
    except PermissionError as error:
        raise PageddError(f"the daemon (pid {holder.pid}) belongs to another user") from error
    until = time.monotonic() + args.timeout
    while (now := lock_holder(socket)) is not None and now.pid in (holder.pid, 0):
        if time.monotonic() > until:
            raise PageddError(
                f"the daemon (pid {holder.pid}) still runs after {args.timeout:g} s: it finishes "
                "requests, or see its log"
            )
        time.sleep(POLL_S)
    say(f"stopped (pid {holder.pid})")
    return 0


def local_socket(config: Config) -> Path:
    """The socket that names the daemon. Errors: ``UsageError`` for a TCP address."""
    url = config.url
    if not url.startswith("unix:"):
        raise UsageError(f"a daemon is stopped by its socket: --url unix:PATH, not {url}")
    return Path(url.removeprefix("unix:")).absolute()
