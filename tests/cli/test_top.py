"""``pagedd top`` as a command: refusals, the simulation, recordings, pictures, without torch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pagedd.cli.top import DEFAULT_SIZE, THEMES
from pagedd_tui.palette import PALETTES
from tests.cli.terminal import PAGEDD, environment, on_terminal, run

HEAVY = ("torch", "transformers", "tokenizers", "numpy", "triton", "safetensors", "gguf")
# None in sys.modules: importing it fails, as where it is not installed
WITHOUT_HEAVY = (
    f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}));"
    "from pagedd.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    """A home without a daemon, and a terminal with colours."""
    return environment(home, PAGEDD_URL=f"unix:{home}/none.sock", TERM="xterm-256color")


def light(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing heavy can be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_HEAVY, *arguments],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_what_is_no_terminal_is_refused_with_one_line(env: dict[str, str]) -> None:
    for flags in ((), ("--demo",), ("--replay", "none")):
        done = run("top", *flags, env=env)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.count(b"\n") == 1
        assert b"pagedd status --watch --json" in done.stderr


@pytest.mark.parametrize("term", ["", "dumb"])
def test_a_dumb_terminal_is_refused(env: dict[str, str], term: str) -> None:
    with on_terminal("top", "--demo", env={**env, "TERM": term}) as screen:
        assert screen.wait() == 2
    assert b"\x1b" not in screen.output
    assert b"pagedd status --watch --json" in screen.output


def test_without_a_daemon_one_line_says_how_to_start_one(env: dict[str, str]) -> None:
    with on_terminal("top", env=env) as screen:
        assert screen.wait() == 69
    assert screen.output.count(b"\n") == 1
    assert b"\x1b" not in screen.output
    assert b"pagedd start" in screen.output
    assert b"pagedd top --demo" in screen.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--demo", "--replay", "f"), "--replay and --demo"),
        (("--replay", "f", "--record", "g"), "--record"),
        (("--web", "--record", "g"), "--record"),
        (("--hz", "31"), "--hz: must be from 0.1 to 30, not 31"),
        (("--hz", "nan"), "--hz"),
        (("--minutes", "0"), "--minutes"),
        (("--web-port", "80"), "--web-port: needs --web"),
        (("--demo", "--web", "--web-port", "70000"), "0 to 65535"),
        (("--size", "80x24"), "--size needs --screenshot"),
        (("--screenshot", "f"), "--screenshot needs --replay or --demo"),
        (("--demo", "--screenshot", "f", "--size", "80"), "--size: must be like 120x40"),
        (("--demo", "--screenshot", "f", "--size", "0x9"), "--size: must be like 120x40"),
        (("--demo", "--screenshot", "f", "--at", "-1"), "--at"),
        (("--theme", "pink"), "okabe-ito"),
    ],
)
def test_flags_that_make_no_sense_are_told(
    env: dict[str, str], flags: tuple[str, ...], said: str
) -> None:
    done = run("top", *flags, env=env)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "key", ["freeze", "freeze=", "freez=f", "palette=f", "freeze=nonsense", "freeze=x"]
)
def test_a_key_map_that_makes_no_sense_is_told(env: dict[str, str], key: str) -> None:
    with on_terminal("top", "--demo", "--key", key, env=env) as screen:
        assert screen.wait() == 2
    assert b"--key" in screen.output


def test_the_themes_are_the_palettes() -> None:
    assert THEMES == PALETTES


@pytest.mark.parametrize(
    ("end", "code"), [("q", 0), ("\x03", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_however_it_ends_the_terminal_is_as_before(
    env: dict[str, str], end: str | signal.Signals, code: int
) -> None:
    size = {"COLUMNS": "120", "LINES": "40"}
    with on_terminal("top", "--demo", env={**env, **size}) as screen:
        modes = screen.modes()
        screen.expect("device pages")
        screen.expect("at a glance")
        if isinstance(end, str):
            screen.type(end)
        else:
            os.kill(screen.process.pid, end)
        screen.expect("\x1b[?1049l")  # back from the other screen
        assert screen.wait() == code
        assert screen.modes() == modes


def test_keys_are_read_whatever_comes_between_them(env: dict[str, str]) -> None:
    """Bytes that are no text, an escape with nothing after it, and being stopped for a while."""
    size = {"COLUMNS": "120", "LINES": "40"}
    with on_terminal("top", "--demo", env={**env, **size}) as screen:
        screen.expect("at a glance")
        screen.type("\udcff\udcc3")
        screen.type("?")
        screen.expect("what the pages are")
        screen.type("\x1b")
        screen.expect("REQUEST")  # it lay under the help
        os.kill(screen.process.pid, signal.SIGTSTP)
        screen.expect("\x1b[?1049l")
        os.waitid(os.P_PID, screen.process.pid, os.WSTOPPED | os.WNOWAIT)
        os.kill(screen.process.pid, signal.SIGCONT)
        screen.expect("at a glance")
        screen.type("q")
        assert screen.wait() == 0


def test_no_color_is_no_colour_at_all(env: dict[str, str]) -> None:
    more = {"COLUMNS": "120", "LINES": "40", "NO_COLOR": "1", "COLORTERM": "truecolor"}
    with on_terminal("top", "--demo", env={**env, **more}) as screen:
        screen.expect("device pages")
        screen.expect("at a glance")
        screen.type("4")
        screen.expect("step ms")
        screen.type("q")
        screen.expect("\x1b[?1049l")
        assert screen.wait() == 0
    codes = set(re.findall(rb"\x1b\[([\d;]*)m", screen.output))
    assert not {code for code in codes if re.search(rb"(^|;)([34][0-8]|9[0-7]|10[0-7])", code)}


def test_a_recording_can_be_shown_again(env: dict[str, str], home: Path) -> None:
    feed, picture = home / "run.feed", home / "run.svg"
    size = {"COLUMNS": "120", "LINES": "40"}
    flags = ("--record", str(feed), "--key", "quit=z")
    with on_terminal("top", "--demo", *flags, env={**env, **size}) as screen:
        screen.expect("requests")
        screen.expect("device pages")
        screen.type("z")
        assert screen.wait() == 0
    done = light("top", "--replay", str(feed), "--screenshot", str(picture), env=env)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert "device&#160;pages" in picture.read_text()
    with on_terminal("top", "--demo", "--record", str(feed), env=env) as screen:
        assert screen.wait() == 2
    assert b"exists already" in screen.output


def test_a_file_that_is_no_recording_is_one_line(env: dict[str, str], home: Path) -> None:
    (home / "foreign").write_bytes(b"\x00\x01" * 100)
    for name in ("foreign", "missing"):
        with on_terminal("top", "--replay", str(home / name), env=env) as screen:
            assert screen.wait() == 2
        assert screen.output.count(b"\n") == 1
        assert name.encode() in screen.output


def test_the_simulation_needs_no_torch_and_gives_the_same_picture(
    env: dict[str, str], home: Path
) -> None:
    pictures = []
    for name in ("one.svg", "two.svg"):
        path = home / name
        flags = ("--demo", "--screenshot", str(path), "--at", "6", "--press", "2")
        done = light("top", *flags, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        pictures.append(path.read_text())
    assert pictures[0] == pictures[1]
    assert "device&#160;pages" in pictures[0]


def test_a_picture_of_any_size_and_without_colours(env: dict[str, str], home: Path) -> None:
    path = home / "small.svg"
    for size in ("1x1", "59x14", "80x24"):
        flags = ("--demo", "--screenshot", str(path), "--at", "2", "--size", size, "--ascii")
        done = run("top", *flags, env={**env, "NO_COLOR": "1"})
        assert (done.returncode, done.stderr) == (0, b"")
        assert not any(colour in path.read_text() for colour in ("#0072b2", "#e69f00", "█"))
    assert DEFAULT_SIZE == "120x40"


def test_a_picture_that_cannot_be_written_is_one_line(env: dict[str, str], home: Path) -> None:
    path = str(home / "no/such/folder.svg")
    done = run("top", "--demo", "--screenshot", path, "--at", "1", env=env)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"No such file" in done.stderr


def test_help_loads_nothing_of_the_dashboard(env: dict[str, str]) -> None:
    code = (
        "import sys; from pagedd.cli.main import build_parser; build_parser('top');"
        "print([m for m in ('textual', 'rich', 'pagedd_tui', 'websockets') if m in sys.modules])"
    )
    command = [PAGEDD[0], "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "[]\n"
