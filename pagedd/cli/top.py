"""``pagedd top``: the pages, the queues and the reasons, live."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pagedd.cli.flags import add_client_options, collect
from pagedd.cli.parser import examples
from pagedd.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from pagedd.config import Config

DESCRIPTION = """\
Watch every page of the cache and who holds it, the requests, and why they wait.
Once it runs, ? shows the keys."""
EPILOG = examples(
    "pagedd top",
    "pagedd top --demo                   no daemon and no model needed",
    "pagedd top --record run.feed",
    "pagedd top --replay run.feed",
    "pagedd top --web --readonly         in a browser of this machine",
    "pagedd top --demo --screenshot top.svg --size 120x40 --at 20",
)
THEMES = ("okabe-ito", "bright", "light", "mono")
DEFAULT_WEB_PORT = 7412
DEFAULT_SIZE, DEFAULT_AT_S = "120x40", 20.0  # of a screenshot

# Of the C library, and of Python's own allocator, which takes memory in small pieces.
IN_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}
_PROGRAMS = ("pagedd", "__main__.py", "main.py")  # what this module may be part of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to show, how, and where the daemon is."""
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--record", metavar="FILE", help="write the feed to a new file too")
    shown.add_argument("--replay", metavar="FILE", help="show a recorded feed; needs no daemon")
    shown.add_argument("--demo", action="store_true", help="show a simulated engine")
    shown.add_argument("--readonly", action="store_true", help="no keys that change anything")
    look = parser.add_argument_group("how it looks")
    look.add_argument(
        "--hz",
        type=float,
        metavar="N",
        help="pictures a second, 0.1 to 30 (default: 10, over SSH 4)",
    )
    look.add_argument(
        "--theme",
        choices=THEMES,
        metavar="|".join(THEMES),
        help="colours (default: okabe-ito)",
    )
    look.add_argument("--ascii", action="store_true", help="no characters but ASCII")
    look.add_argument(
        "--minutes",
        type=float,
        default=5.0,
        metavar="N",
        help="how far one can go back, 0.5 to 60 (default: 5)",
    )
    look.add_argument(
        "--key",
        action="append",
        metavar="NAME=KEY",
        help="another key for something, such as freeze=f; repeatable",
    )
    other = parser.add_argument_group("instead of this terminal")
    other.add_argument("--web", action="store_true", help="serve it to a browser of this machine")
    other.add_argument(
        "--web-port",
        type=int,
        metavar="PORT",
        help=f"where, 0 for any free port (default: {DEFAULT_WEB_PORT})",
    )
    other.add_argument(
        "--screenshot", metavar="FILE", help="with --replay or --demo: write a picture as SVG"
    )
    other.add_argument("--size", metavar="WxH", help=f"its cells (default: {DEFAULT_SIZE})")
    other.add_argument(
        "--at", type=float, metavar="SECONDS", help=f"its moment (default: {DEFAULT_AT_S:g})"
    )
    other.add_argument("--press", action="append", metavar="KEY", help="a key pressed before")
    add_client_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; 1 failure; 2 usage; 69 when there is no daemon; 130 interrupted."""
    config = collect(args)
    _check(args)

    from pagedd.cli import top_session

    if args.screenshot is not None:
        return top_session.screenshot(args)
    if not (args.web or top_session.in_browser()):
        _need_terminal()
        if args.replay is None and not args.demo:
            _in_huge_pages()
    _reach(args, config)
    if args.web:
        port = DEFAULT_WEB_PORT if args.web_port is None else args.web_port
        return top_session.serve(args, port, config.key)
    return top_session.show(args, config)


def _check(args: argparse.Namespace) -> None:
    """Errors: ``UsageError`` for flags that contradict each other and for values out of range."""
    if args.replay is not None and args.demo:
        raise UsageError("--replay and --demo exclude each other")
    if args.record is not None and (args.replay is not None or args.web):
        raise UsageError("--record needs a daemon or --demo, and a terminal")
    if args.hz is not None and not 0.1 <= args.hz <= 30:
        raise UsageError(f"--hz: must be from 0.1 to 30, not {args.hz:g}")
    if not 0.5 <= args.minutes <= 60:
        raise UsageError(f"--minutes: must be from 0.5 to 60, not {args.minutes:g}")
    if args.web_port is not None and not (args.web and 0 <= args.web_port <= 65535):
        raise UsageError("--web-port: needs --web, and must be from 0 to 65535")
    if args.screenshot is None:
        for flag in ("size", "at", "press"):
            if getattr(args, flag) is not None:
                raise UsageError(f"--{flag} needs --screenshot")
    elif args.web or args.record is not None or not (args.demo or args.replay is not None):
        raise UsageError("--screenshot needs --replay or --demo, and goes with nothing else")
    if args.at is not None and not 0 <= args.at <= 86400:
        raise UsageError(f"--at: must be from 0 to 86400 seconds, not {args.at:g}")


def _in_huge_pages() -> None:
    """Begin again with memory in huge pages, before much is used, where glibc (2.35) can.

    A picture touches what rested since the last one, and the engine has driven it out: with few
    pages to be looked up anew, it costs a third.
    """
    asked = os.environ.keys() & IN_HUGE_PAGES.keys()
    if sys.platform != "linux" or asked or Path(sys.argv[0]).name not in _PROGRAMS:
        return
    with suppress(OSError):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | IN_HUGE_PAGES)


def _need_terminal() -> None:
    """Errors: ``UsageError`` where nobody can look at it."""
    from pagedd.cli.terminal import is_terminal

    instead = "for programs there is: pagedd status --watch --json"
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError(f"pagedd top needs a terminal; {instead}")
    if os.environ.get("TERM", "") in ("", "dumb"):
        raise UsageError(f"this terminal (TERM) can show no picture; {instead}")


def _reach(args: argparse.Namespace, config: Config) -> None:
    """Errors: ``Unreachable`` when a daemon is needed and none answers."""
    if args.demo or args.replay is not None:
        return
    from pagedd.cli.connection import open_connection

    try:
        open_connection(config.url, config.key).close()
    except Unreachable as error:
        raise Unreachable(f"{error.message}; pagedd top --demo shows a simulated one") from error
