"""What ``pagedd top`` does once its flags are checked: on a terminal, in a browser, to a file."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pagedd.cli.flags import given_flags
from pagedd.cli.top import DEFAULT_AT_S, DEFAULT_SIZE
from pagedd.errors import UsageError

if TYPE_CHECKING:
    from pagedd.config import Config
    from pagedd_tui.pace import Pace
    from pagedd_tui.palette import Palette
    from pagedd_tui.source import Source

LOCAL_HZ, REMOTE_HZ = 10.0, 4.0
LEAST_HZ = 4.0  # of looking at keys, however seldom the daemon is asked for a picture
WEB_DRIVER = "textual.drivers.web_driver"
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def in_browser() -> bool:
    """Whether this process draws on the page of a browser, as ``--web`` has made it do."""
    return os.environ.get("TEXTUAL_DRIVER", "").startswith(WEB_DRIVER)


def serve(args: argparse.Namespace, port: int, api_key: str | None) -> int:
    """Let a browser of this machine show it, until interrupted. Errors: ``PageddError``."""
    from pagedd_tui.web import serve

    _key_map(args)
    if args.replay is not None:
        _played(args)
    return serve(_arguments_of_a_session(args), port, api_key=api_key)


def show(args: argparse.Namespace, config: Config) -> int:
    """The dashboard, until it is left; the exit code. Errors: ``UsageError``."""
    from pagedd_tui.app import run_top
    from pagedd_tui.pace import REAL
    from pagedd_tui.recording import Recorder

    hz = _hz(args)
    if args.demo or args.replay is not None:
        source = _played(args)(REAL)
    else:
        from pagedd_tui.live import LiveSource

        source = LiveSource(config.url, config.key, hz)
    palette, key_map = _palette(args), _key_map(args)
    if in_browser():
        from pagedd_tui.web import run_session

        return run_session(
            source,
            palette=palette,
            readonly=args.readonly,
            ring_minutes=args.minutes,
            map_hz=max(hz, LEAST_HZ),
            key_map=key_map,
        )
    recording = nullcontext() if args.record is None else Recorder(Path(args.record))
    with recording as recorder, _Ending() as ending:
        code = run_top(
            source,
            palette=palette,
            readonly=args.readonly,
            ring_minutes=args.minutes,
            map_hz=max(hz, LEAST_HZ),
            recorder=recorder,
            key_map=key_map,
        )
    if ending.signal is not None:
        return 128 + ending.signal
    if recorder is not None and recorder.problem:
        from pagedd.cli.terminal import say

        say(recorder.problem)
        return 1
    return code


class _Ending:
    """Lets SIGTERM and SIGHUP end the dashboard as SIGINT does, with the terminal as it was."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in _ENDING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        # SIGINT is that of the event loop, which cancels what runs, so that all of it is undone
        if self.signal is None:
            self.signal = number
            signal.raise_signal(signal.SIGINT)


def screenshot(args: argparse.Namespace) -> int:
    """Write the picture. Errors: ``UsageError``, ``OSError``."""
    import asyncio

    from pagedd_tui.screenshot import take_screenshot

    size = _size(args.size or DEFAULT_SIZE)
    at = DEFAULT_AT_S if args.at is None else args.at
    path, keys = Path(args.screenshot), args.press or ()
    make = _played(args)
    asyncio.run(take_screenshot(make, path, palette=_palette(args), size=size, at=at, keys=keys))
    return 0


def _played(args: argparse.Namespace) -> Callable[[Pace], Source]:
    """The recording or the simulation, for a pace. Errors: ``UsageError``."""
    if args.demo:
        from pagedd_tui.demo import DemoSource

        def demo(pace: Pace) -> Source:
            return DemoSource(pace=pace)

        return demo
    from pagedd_tui.recording import RecordingSource

    def recording(pace: Pace) -> Source:
        return RecordingSource(Path(args.replay), pace)

    return recording


def _palette(args: argparse.Namespace) -> Palette:
    from pagedd.cli.terminal import can_show
    from pagedd_tui.palette import choose

    drawn = args.screenshot is not None or in_browser() or can_show(sys.stdout, "█▁·●")
    no_color = bool(os.environ.get("NO_COLOR"))
    return choose(args.theme, ascii=args.ascii or not drawn, no_color=no_color)


def _hz(args: argparse.Namespace) -> float:
    if args.hz is not None:
        hz: float = args.hz
        return hz
    return REMOTE_HZ if os.environ.get("SSH_CONNECTION") else LOCAL_HZ


def _key_map(args: argparse.Namespace) -> dict[str, str]:
    """Ctrl-C leaves too, whatever the key for it. Errors: ``UsageError`` for what cannot be."""
    from pagedd.config import did_you_mean
    from pagedd_tui.keys import bindings, problem_of

    keys = {each.id: each.key for each in bindings() if not isinstance(each, tuple) and each.id}
    names = list(keys)
    found: dict[str, str] = {}
    for text in args.key or ():
        name, equals, key = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--key: must be NAME=KEY, not {text!r}")
        if name not in names:
            guess = did_you_mean(name, names)
            raise UsageError(f"--key: there is no {name!r}{guess} (see man pagedd-top)")
        found[name] = "comma" if key == "," else key  # commas lie between keys
    problem = problem_of(found)
    if problem:
        raise UsageError(f"--key: {problem}")
    found["quit"] = f"{found.get('quit', keys['quit'])},ctrl+c"
    return found


def _size(text: str) -> tuple[int, int]:
    """Errors: ``UsageError``."""
    width, _, height = text.partition("x")
    try:
        size = int(width), int(height)
    except ValueError:
        size = 0, 0
    if not all(1 <= cells <= 1000 for cells in size):
        raise UsageError(f"--size: must be like {DEFAULT_SIZE}, at most 1000x1000, not {text!r}")
    return size


def _arguments_of_a_session(args: argparse.Namespace) -> list[str]:
    """The command line for a page of a browser: the same view, without the daemon's key."""
    words = ["top", "--hz", f"{_hz(args):g}", "--minutes", f"{args.minutes:g}"]
    words += ["--demo"] * args.demo + ["--readonly"] * args.readonly + ["--ascii"] * args.ascii
    for flag in ("replay", "theme", "config"):
        value = getattr(args, flag)
        words += [] if value is None else [f"--{flag}={value}"]
    words += [f"--key={key}" for key in args.key or ()]
    url = given_flags(args).get("url")
    return [*words, f"--url={url}"] if url is not None else words
