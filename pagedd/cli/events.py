"""``pagedd events``: what the scheduler decided, with its reasons."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples
from pagedd.errors import UsageError

if TYPE_CHECKING:
    from pagedd.cli.connection import Connection
    from pagedd.protocol import Event

DESCRIPTION = """\
Print the last events that the daemon remembers, one a line: when, what, which request, and why."""
EPILOG = examples(
    "pagedd events",
    "pagedd events --follow",
    "pagedd events --follow --kind preempted --kind resumed",
    "pagedd events --request 17 --lines 100",
    "pagedd events --follow --json >> events.jsonl",
)
LOOK_S = 0.1
# All of pagedd.protocol.records.Kind, whose import takes time, but those of explanations alone; a
# test compares.
KINDS = (
    *("accepted", "admitted", "waiting", "preempted", "resumed", "evicted"),
    *("shrunk", "reprioritized", "finished", "failed", "missed"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which events, how to show them, and where the daemon is."""
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "--lines",
        type=int,
        default=20,
        metavar="N",
        help="past events that are shown (default: 20)",
    )
    parser.add_argument("--request", metavar="ID", help="only events of this request")
    parser.add_argument(
        "--kind",
        action="append",
        metavar="KIND",
        help=f"only events of this kind: {', '.join(KINDS)}; repeatable",
    )
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; 2 usage; 69 when there is no daemon, or when it ends; 130 interrupted."""
    config = collect(args)
    wanted = _filter(args)

    from pagedd.cli.connection import open_connection
    from pagedd.cli.requests import past_events
    from pagedd.protocol import MAX_HISTORY

    if not 0 <= args.lines <= MAX_HISTORY:
        raise UsageError(f"--lines: must be from 0 to {MAX_HISTORY}, not {args.lines}")
    show = _printer(json=args.json)
    narrowed = args.request is not None or args.kind is not None
    with open_connection(config.url, config.key) as connection:
        past = past_events(connection, MAX_HISTORY if narrowed and args.lines else args.lines)
        for event in deque(filter(wanted, past), maxlen=args.lines):
            show(event)
        sys.stdout.flush()
        return _follow(connection, wanted, show) if args.follow else 0


def _filter(args: argparse.Namespace) -> Callable[[Event], bool]:
    """Whether an event is wanted. That some were missed is always said. Errors: ``UsageError``."""
    from pagedd.config import did_you_mean

    for kind in args.kind or ():
        if kind not in KINDS:
            guess = did_you_mean(kind, KINDS)
            raise UsageError(f"--kind: must be one of {', '.join(KINDS)}, not {kind!r}{guess}")
    if args.request == "":
        raise UsageError("--request: the id is empty: pagedd explain lists what is open")
    number = (args.request or "").removeprefix("#")
    handle = int(number) if number.isascii() and number.isdecimal() else None

    def wanted(event: Event) -> bool:
        if event.kind == "missed":
            return True
        if args.kind is not None and event.kind not in args.kind:
            return False
        if args.request is None:
            return True
        return event.handle == handle if handle is not None else event.request == args.request

    return wanted


def _printer(*, json: bool) -> Callable[[Event], None]:
    if json:
        import msgspec

        from pagedd.cli.terminal import write_json

        return lambda event: write_json(msgspec.json.encode(event))

    from pagedd.cli.record_view import Paper, event_lines

    paper = Paper(sys.stdout)
    return lambda event: print("\n".join(event_lines(event, paper)))


def _follow(
    connection: Connection,
    wanted: Callable[[Event], bool],
    show: Callable[[Event], None],
) -> int:
    """Until Ctrl-C, or until who reads has left. Errors: ``Lost`` when the daemon ends."""
    from pagedd.cli.interrupt import Interrupts
    from pagedd.cli.terminal import check_reader, is_fancy
    from pagedd.protocol import Event

    with Interrupts() as interrupts:
        while not interrupts.count:
            frame = connection.receive(LOOK_S)
            if isinstance(frame, Event) and wanted(frame):
                show(frame)
                sys.stdout.flush()
            else:
                check_reader(sys.stdout)
    if is_fancy(sys.stdout):
        print()  # the terminal has written ^C into the line
    return 130
