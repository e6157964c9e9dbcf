"""``pagedd status``: what the daemon is doing right now."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples
from pagedd.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from pagedd.cli.connection import Connection
    from pagedd.cli.interrupt import Interrupts
    from pagedd.protocol import Status

DESCRIPTION = """\
Show the daemon's state, its requests, its pages and its speed.
Exit code 0 when it runs, 3 when it does not."""
EPILOG = examples(
    "pagedd status",
    "pagedd status --watch",
    "pagedd status --json | jq .pages",
    "pagedd status --watch --json --interval 5 >> log.jsonl",
)
NOT_RUNNING = 3
ANSWER_TIMEOUT_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How to show it, and where the daemon is."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--watch", action="store_true", help="go on until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="with --watch: time between two looks (default: 1)",
    )
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0 running; 3 not running; 130 when a watch is interrupted."""
    config = collect(args)
    if not 0.05 <= args.interval <= 86400:
        raise UsageError(f"--interval: must be from 0.05 to 86400 seconds, not {args.interval:g}")

    if not args.watch and _at_a_glance(config.url, json=args.json):
        return 0

    from pagedd.cli.connection import open_connection
    from pagedd.cli.terminal import say

    try:
        with open_connection(config.url, config.key) as connection:
            return _watch(connection, args) if args.watch else _once(connection, args)
    except Unreachable as error:
        say(error.message)
        return NOT_RUNNING


def _at_a_glance(url: str, *, json: bool) -> bool:
    """Print the status if it can be had the quick way."""
    from pagedd.cli.glance import glance, status_of

    body = glance(url)
    if body is None:
        return False
    if json:
        from pagedd.cli.terminal import write_json

        write_json(body)
        return True
    status = status_of(body)
    if status is None:
        return False
    try:
        _print(status, json=False)
    except AttributeError:
        return False  # a daemon of another version: the websocket's types say what differs
    return True


def ask_status(connection: Connection) -> Status:
    """One status. Errors: ``Unreachable`` when none comes."""
    from pagedd.protocol import Status, StatusRequest

    connection.send(StatusRequest())
    while True:
        frame = connection.receive(ANSWER_TIMEOUT_S)
        if isinstance(frame, Status):
            return frame
        if frame is None:
            raise Unreachable(f"the daemon at {connection.url} does not answer")


def _once(connection: Connection, args: argparse.Namespace) -> int:
    _print(ask_status(connection), json=args.json)
    return 0


def _watch(connection: Connection, args: argparse.Namespace) -> int:
    from pagedd.cli.interrupt import Interrupts
    from pagedd.cli.terminal import is_fancy

    redraw = is_fancy(sys.stdout) and not args.json
    lines = 0
    with Interrupts() as interrupts:
        while not interrupts.count:
            status = ask_status(connection)
            if redraw and lines:
                print(f"\x1b[{lines}A\x1b[J", end="")
            elif lines and not args.json:
                print()
            lines = _print(status, json=args.json)
            _wait(connection, args.interval, interrupts)
    if redraw:
        print()  # the terminal has written ^C into the line
    return 130


def _wait(connection: Connection, seconds: float, interrupts: Interrupts) -> None:
    """Until the next look; a connection that ends or a reader that leaves is noticed."""
    import time

    from pagedd.cli.terminal import check_reader

    until = time.monotonic() + seconds
    while not interrupts.count and (rest := until - time.monotonic()) > 0:
        check_reader(sys.stdout)
        connection.receive(min(rest, 0.1))


def _print(status: Status, *, json: bool) -> int:
    """Returns the number of lines."""
    if json:
        import msgspec

        from pagedd.cli.terminal import write_json

        write_json(msgspec.json.encode(status))
        return 1
    from pagedd.cli.status_view import lines_of

    lines = lines_of(status, sys.stdout)
    print("\n".join(lines), flush=True)
    return len(lines)
