"""``pagedd explain``: why a request is where it is."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples

if TYPE_CHECKING:
    from pagedd.cli.connection import Connection
    from pagedd.protocol import Explanation

DESCRIPTION = """\
Say where a request is, when it starts, goes on or ends, how it came there, and why it stands so:
what limits it, what it needs, what is free and who holds the rest.
Without a request: one line for each that is open."""
EPILOG = examples(
    "pagedd explain",
    "pagedd explain 17",
    "pagedd explain 17 --json | jq '.reasons[-1]'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which request, how to show it, and where the daemon is."""
    parser.add_argument(
        "id",
        nargs="?",
        metavar="ID",
        help="the daemon's number of the request, 17 or '#17', or the name that its client gave it",
    )
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; 1 when there is no such request; 2 usage; 69 no daemon."""
    config = collect(args)

    from pagedd.cli.connection import open_connection
    from pagedd.cli.requests import explanation_of

    with open_connection(config.url, config.key) as connection:
        if args.id is None:
            _print_all(_open(connection), json=args.json)
        else:
            _print(explanation_of(connection, args.id), json=args.json)
    return 0


def _open(connection: Connection) -> list[Explanation]:
    """Of every request that is open; one that ends meanwhile is left out."""
    from pagedd.cli.requests import ENDED, explanations_of, open_requests

    found = explanations_of(connection, open_requests(connection))
    return [explanation for explanation in found if explanation.state != ENDED]


def _print(explanation: Explanation, *, json: bool) -> None:
    if json:
        _print_json(explanation)
        return
    from pagedd.cli.explain_view import explanation_lines
    from pagedd.cli.record_view import Paper

    print("\n".join(explanation_lines(explanation, Paper(sys.stdout))))


def _print_all(explanations: list[Explanation], *, json: bool) -> None:
    if json:
        for explanation in explanations:
            _print_json(explanation)
        return
    from pagedd.cli.explain_view import table_lines
    from pagedd.cli.record_view import Paper

    lines = table_lines(explanations, Paper(sys.stdout))
    print("\n".join(lines) if lines else "no request is open")


def _print_json(explanation: Explanation) -> None:
    import msgspec

    from pagedd.cli.terminal import write_json

    write_json(msgspec.json.encode(explanation))
