"""``make binary``: the command in one file, alone in a folder, with and without torch beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import on_terminal
from tests.server.harness import ROOT, Daemon, make_text_dir
from tests.tiny.models import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]


@pytest.fixture(scope="module")
def alone() -> Iterator[Path]:
    """A folder that holds the one file, and beside it a home and a Python without packages."""
    with tempfile.TemporaryDirectory(prefix="pagedd-") as name:
        folder = Path(name)
        built = subprocess.run(
            [
                *("make", f"VENV={sys.prefix}", f"--assume-old={sys.prefix}/ready"),
                *("binary", f"BINARY={folder}/built/pagedd"),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert built.returncode == 0, built.stderr[-2000:]
        for inner in ("alone", "home"):
            (folder / inner).mkdir(mode=0o700)
        (folder / "built" / "pagedd").rename(folder / "alone" / "pagedd")
        subprocess.run(
            [os.path.realpath(sys.executable), "-m", "venv", "--without-pip", folder / "bare"],
            check=True,
            timeout=120,
        )
        yield folder


@pytest.fixture(scope="module")
def daemon(alone: Path) -> Iterator[Daemon]:
    """A daemon of the source tree, over the fake engine."""
    running = Daemon(alone / "d", make_text_dir(alone / "text"), listen=None)
    yield running
    assert running.stop()[0] == 0


def environ(alone: Path, **more: str) -> dict[str, str]:
    """Nothing of this project's environment."""
    path = f"{alone}/bare/bin:/usr/bin:/bin"
    return {"HOME": f"{alone}/home", "PATH": path, "LANG": "C.UTF-8", "PAGEDD_HTTP": "off", **more}


def pagedd(
    alone: Path, *arguments: str, python: str | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the one file by itself, or by ``python``."""
    command = [python] if python else []
    return subprocess.run(
        [*command, str(alone / "alone" / "pagedd"), *arguments],
        cwd=alone / "alone",
        env=environ(alone, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_clients_need_nothing_but_the_file(alone: Path, daemon: Daemon) -> None:
    url = f"unix:{daemon.settings.socket}"
    for _ in range(2):  # unpacking itself, and not
        status = pagedd(alone, "status", PAGEDD_URL=url)
        assert (status.returncode, status.stderr) == (0, "")
        assert "ready  fake" in status.stdout
    answer = pagedd(alone, "generate", "--raw", "--max-tokens=5", "abc", PAGEDD_URL=url)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("abcab")
    assert pagedd(alone, "explain", PAGEDD_URL=url).stdout == "no request is open\n"
    assert pagedd(alone, "--version").stdout.startswith("pagedd 0.")
    assert "start" in pagedd(alone, "--help").stdout
    assert "max-num-seqs" in pagedd(alone, "config", "show").stdout


@pytest.mark.parametrize("flags", [(), ("--demo",)])
def test_the_dashboard_is_in_it(alone: Path, daemon: Daemon, flags: tuple[str, ...]) -> None:
    env = environ(alone, PAGEDD_URL=f"unix:{daemon.settings.socket}", TERM="xterm-256color")
    env |= {"COLUMNS": "120", "LINES": "40"}
    with on_terminal("top", *flags, env=env, pagedd=[str(alone / "alone" / "pagedd")]) as screen:
        screen.expect("device pages")
        screen.expect("at a glance")
        screen.type("q")
        assert screen.wait() == 0


@pytest.mark.parametrize("flags", [(), ("--detach",)])
def test_start_says_what_is_missing(alone: Path, flags: tuple[str, ...]) -> None:
    bare = f"{alone}/bare/bin/python"
    for python in (None, bare):
        done = pagedd(alone, "start", "--socket", f"{alone}/none.sock", *flags, python=python)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "start needs torch and transformers, which " in done.stderr
        assert f"{alone}/bare/bin/python" in done.stderr
        assert "-m pip install" in done.stderr


def test_a_service_is_run_by_the_same_python(alone: Path) -> None:
    done = pagedd(alone, "service", "install", "--print", python=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{sys.executable} {alone}/alone/pagedd start" in done.stdout


def test_beside_a_python_with_torch_it_serves(alone: Path) -> None:
    model = build("llama", alone / "tiny")
    socket = f"{alone}/s/p.sock"
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    where = {"PAGEDD_URL": f"unix:{socket}", "XDG_CACHE_HOME": cache}  # of the compiled kernels
    flags = (f"--socket={socket}", "--listen=off", f"--model={model}", f"--log-file={alone}/log")
    # not in front of the one file's own modules
    (alone / "alone" / "msgspec.py").write_text("raise SystemExit('the wrong msgspec')\n")
    hostile = {"PYTHONPATH": str(alone / "alone")}
    started = pagedd(alone, "start", "--detach", *flags, python=sys.executable, **where, **hostile)
    assert started.returncode == 0, started.stderr
    try:
        answer = pagedd(alone, "generate", "--raw", "--max-tokens=5", "abc", **where)
        assert (answer.returncode, answer.stderr) == (0, "")
        status = pagedd(alone, "status", "--json", **where)
        assert '"generated":5' in status.stdout
    finally:
        assert pagedd(alone, "stop", **where).returncode == 0
    # and found on the path, when the file is run by itself
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    where["PATH"] = path
    started = pagedd(alone, "start", "--detach", *flags, **where)
    assert started.returncode == 0, started.stderr
    assert pagedd(alone, "stop", **where).returncode == 0
