"""``pagedd metrics``: where Prometheus finds the metrics, and a dashboard that shows them."""

from __future__ import annotations

import argparse
import sys
from importlib import resources

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples
from pagedd.errors import PageddError

DESCRIPTION = """\
Print the address of the daemon's metrics, which Prometheus is to be told; or, with --dashboard,
a dashboard for Grafana that shows them. pagedd-metrics(7) explains each of them."""
EPILOG = examples(
    "pagedd metrics",
    'curl -s "$(pagedd metrics)"',
    "pagedd metrics --dashboard > pagedd.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which of the two, and where the daemon is."""
    parser.add_argument(
        "--dashboard", action="store_true", help="print the dashboard, as JSON for Grafana"
    )
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; errors are those of a connection, and that the daemon serves no HTTP."""
    config = collect(args)
    if args.dashboard:
        sys.stdout.write(dashboard())
        return 0

    from pagedd.cli.connection import open_connection
    from pagedd.cli.status import ask_status

    with open_connection(config.url, config.key) as connection:
        endpoints = ask_status(connection).endpoints
    address = next((each for each in endpoints if each.startswith("http")), None)
    if address is None:
        raise PageddError("the daemon serves no HTTP, and so no metrics (--http)")
    print(f"{address}/metrics")
    return 0


def dashboard() -> str:
    """A dashboard for Grafana: JSON."""
    return (resources.files("pagedd") / "data" / "grafana.json").read_text("utf-8")
