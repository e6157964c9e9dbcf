"""A priority on the command line."""

from __future__ import annotations

import argparse

from pagedd.config.kinds import whole

_KIND = whole(-(2**31), 2**31 - 1)  # the protocol's


def priority(text: str) -> int:
    """An argparse type. Errors: ``ArgumentTypeError``."""
    try:
        found: int = _KIND.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be {_KIND.expects}, not {text!r}") from error
    return found


def add_priority_flag(parser: argparse.ArgumentParser) -> None:
    """``--priority N``."""
    parser.add_argument(
        "--priority",
        type=priority,
        default=0,
        metavar="N",
        help="smaller is more urgent (default: 0)",
    )
