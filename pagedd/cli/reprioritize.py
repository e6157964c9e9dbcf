"""``pagedd reprioritize``: make a request more or less urgent."""

from __future__ import annotations

import argparse

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples
from pagedd.cli.priority import priority

DESCRIPTION = """\
Give a waiting or running request another priority, and say where it is then.
A smaller number is more urgent. pagedd explain lists the open ones with their numbers."""
EPILOG = examples(
    "pagedd reprioritize 17 -5",
    "pagedd reprioritize '#17' 10",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which request, its new priority, and where the daemon is."""
    parser.add_argument(
        "id",
        metavar="ID",
        help="the daemon's number of the request, 17 or '#17', or the name that its client gave it",
    )
    parser.add_argument(
        "priority", type=priority, metavar="PRIORITY", help="smaller is more urgent; 0 is usual"
    )
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; 1 when there is no such request; 2 usage; 69 no daemon."""
    config = collect(args)

    from pagedd.cli.connection import open_connection
    from pagedd.cli.explain_view import eta
    from pagedd.cli.requests import ENDED, explanation_of, number_of, tell
    from pagedd.cli.terminal import say
    from pagedd.protocol import Reprioritize

    with open_connection(config.url, config.key) as connection:
        name = number_of(connection, args.id)
        tell(connection, Reprioritize(name, args.priority))
        explanation = explanation_of(connection, name)
    if explanation.state == ENDED:
        say(f"{name} has ended meanwhile")
        return 0
    where = ", ".join(part for part in (explanation.state, eta(explanation)) if part)
    say(f"{name} has priority {args.priority}: {where}")
    return 0
