"""``pagedd cancel``: end a request of any client."""

from __future__ import annotations

import argparse

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples

DESCRIPTION = """\
End a request; its client gets what was generated so far, and the reason "cancelled".
pagedd explain lists the open ones with their numbers."""
EPILOG = examples(
    "pagedd cancel 17",
    "pagedd cancel '#17'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which request, and where the daemon is."""
    parser.add_argument(
        "id",
        metavar="ID",
        help="the daemon's number of the request, 17 or '#17', or the name that its client gave it",
    )
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; 1 when there is no such request; 2 usage; 69 no daemon."""
    config = collect(args)

    from pagedd.cli.connection import open_connection
    from pagedd.cli.requests import number_of, tell
    from pagedd.cli.terminal import say
    from pagedd.protocol import Cancel

    with open_connection(config.url, config.key) as connection:
        name = number_of(connection, args.id)
        tell(connection, Cancel(name))
    say(f"{name} is cancelled")
    return 0
