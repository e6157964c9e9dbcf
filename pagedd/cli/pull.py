"""``pagedd pull``: download a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagedd.cli.parser import examples
from pagedd.models.catalog import CATALOG, DEFAULT_MODEL

DESCRIPTION = f"""\
Download a model into the cache folder and check it. Short names: {", ".join(sorted(CATALOG))}.
What is there already is not downloaded again; an interrupted download goes on where it was."""
EPILOG = examples(
    "pagedd pull",
    f"pagedd pull {DEFAULT_MODEL}",
    "pagedd pull HuggingFaceTB/SmolLM2-360M-Instruct",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model's name."""
    parser.add_argument(
        "name",
        nargs="?",
        default=DEFAULT_MODEL,
        help=f"short name or hub id (default: {DEFAULT_MODEL})",
    )


def run(args: argparse.Namespace) -> int:
    """0; 1 when it cannot be had."""
    print(fetch(args.name))
    return 0


def fetch(name: str) -> Path:
    """Download with progress on standard error; returns the file or folder.

    Errors: those of ``pagedd.models.pull``.
    """
    from pagedd.cli.progress import shown_progress
    from pagedd.models.pull import pull

    with shown_progress() as progress:
        return pull(name, progress)
