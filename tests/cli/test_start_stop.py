"""Starting, launching and stopping, around the lock and the readiness pipe."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pagedd.cli import launch
from pagedd.cli.flags import add_start_options
from pagedd.cli.lock import lock_holder
from pagedd.cli.main import build_parser, main
from pagedd.cli.parser import Parser
from pagedd.cli.start import flags_again, settings_from
from pagedd.config import load_config
from pagedd.errors import PageddError, UsageError
from pagedd.server.settings import TlsFiles
from tests.cli.terminal import environment, run

NOWHERE = Path("/nonexistent/pagedd.toml")
# Holds the lock that its argument names, writes a line when it does, and ends at SIGTERM.
HOLDER = """
import fcntl, json, os, signal, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
json.dump({"pid": os.getpid(), "boot_id": "b", "version": "0.1.0"}, file); file.flush()
if sys.argv[2:] == ["deaf"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(lock: Path, *how: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock), *how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_only_a_held_lock_is_a_daemon(home: Path) -> None:
    socket, lock = home / "s", home / "s.lock"
    assert lock_holder(socket) is None
    lock.write_text(json.dumps({"pid": 1234, "boot_id": "b", "version": "0.1.0"}))
    assert lock_holder(socket) is None
    for content, pid in ((lock.read_text(), 1234), ("", 0), ("[]", 0), ('{"pid": "x"}', 0)):
        lock.write_text(content)
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            holder = lock_holder(socket)
        assert holder is not None
        assert holder.pid == pid


def test_stop_ends_the_holder_of_the_lock(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"unix:{home / 's'}"
    with holding(home / "s.lock") as process:
        assert main(["stop", "--url", url]) == 0
        assert f"stopped (pid {process.pid})" in capsys.readouterr().err
    assert main(["stop", "--url", url]) == 0
    assert "no daemon runs" in capsys.readouterr().err


def test_stop_gives_up_after_its_timeout(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with holding(home / "s.lock", "deaf") as process:
        assert main(["stop", "--url", f"unix:{home / 's'}", "--timeout", "0.1"]) == 1
        assert process.poll() is None
    assert "still runs after 0.1 s" in capsys.readouterr().err


def test_start_names_who_holds_the_socket_before_it_looks_for_the_model(home: Path) -> None:
    with holding(home / "s.lock") as process:
        done = run("start", "--socket", str(home / "s"), "--model", "/none", env=environment(home))
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"pagedd: a daemon is running already (pid {process.pid}) on unix:{home / 's'}: "
        "pagedd stop ends it; another one needs --socket, --listen and --http of its own\n"
    )


def test_a_detached_start_fails_like_one_in_the_foreground(home: Path) -> None:
    for flag in ([], ["--detach"]):
        done = run("start", *flag, "--model", "/none", env=environment(home))
        assert done.returncode == 1
        assert b"no model at '/none'" in done.stderr or b"/none" in done.stderr
        assert done.stderr.count(b"\n") == 1


def fake_child(monkeypatch: pytest.MonkeyPatch, home: Path, code: str) -> None:
    """``launch`` runs this code; ``fd`` is the write end of the readiness pipe."""
    script = home / "child.py"
    script.write_text(f"import os, sys\nfd = int(sys.argv[-1])\n{code}\n")
    interpreter = home / "python"
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))


def test_a_launched_daemon_that_says_ready_is_returned(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    fake_child(monkeypatch, home, "os.write(fd, b'ready\\n'); os.close(fd); sys.stdin.read()")
    daemon = launch.launch(["--listen=off"], home / "log" / "pagedd.log", own_session=True)
    assert daemon.wait(30) == 0


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("os.write(fd, b'the port is taken\\n'); sys.exit(1)", PageddError, "the port is taken"),
        ("os.write(fd, b'--listen: wrong\\n'); sys.exit(2)", UsageError, "--listen: wrong"),
        ("sys.exit(7)", PageddError, "the daemon did not start: it exited with 7"),
        ("os.kill(os.getpid(), 9)", PageddError, "did not start: signal 9 ended it"),
        (
            "print('out of memory', file=sys.stderr); sys.exit(1)",
            PageddError,
            "the end of .*out of memory",
        ),
    ],
)
def test_a_daemon_that_fails_tells_why(
    monkeypatch: pytest.MonkeyPatch, home: Path, code: str, kind: type[PageddError], message: str
) -> None:
    fake_child(monkeypatch, home, code)
    log = home / "pagedd.log"
    log.write_text("a line of yesterday\n")
    with pytest.raises(kind, match=f"(?s){message}") as found:
        launch.launch([], log, own_session=False)
    assert type(found.value) is kind
    assert "yesterday" not in found.value.message


def test_each_socket_has_a_log_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))

    def log(**variables: str) -> Path:
        return launch.default_log(load_config({}, variables, user_file=NOWHERE))

    usual = home / "state" / "pagedd" / "pagedd.log"
    assert log() == log(PAGEDD_SOCKET=str(home / "pagedd" / "pagedd.sock")) == usual
    others = [log(PAGEDD_SOCKET=str(home / path)) for path in ("a.sock", "b.sock", "x/a.sock")]
    assert len({usual, *others}) == 4
    assert {path.parent for path in others} == {usual.parent}
    assert re.fullmatch(r"pagedd-a-[0-9a-f]{8}\.log", others[0].name)


def test_a_log_needs_no_folder_of_sockets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    (home / "pagedd").write_text("in the way of the default socket")
    config = load_config({"socket": str(home / "a.sock")}, {}, user_file=NOWHERE)
    assert launch.default_log(config).name.startswith("pagedd-a-")


def test_flags_go_on_to_a_detached_daemon_unchanged() -> None:
    given = [
        "--max-num-seqs=3",
        "--no-prefix-cache",
        "--allow-origin=https://a.example,https://b.example",
        "--seed=-5",
    ]
    parser = Parser(prog="x")
    add_start_options(parser)
    args = parser.parse_all(
        [
            *given[:2],
            *["--allow-origin", "https://a.example"],
            "--allow-origin=https://b.example",
            given[3],
            "--config",
            "/c.toml",
        ]
    )
    assert sorted(flags_again(args)) == sorted([*given, "--config=/c.toml"])


@pytest.mark.parametrize("how", [[], ["--detach"]])
@pytest.mark.parametrize(("flag", "other"), [("--http", "--listen"), ("--listen", "--http")])
def test_a_port_that_is_taken_is_told_before_anything_is_done(
    home: Path, flag: str, other: str, how: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = [f"{flag}={place}", f"{other}=127.0.0.1:0", "--model=no-one/nothing", *how]
        done = run("start", *flags, env=environment(home))
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"pagedd: {flag} {place}: the port is taken by another program; "
        f"{flag} HOST:PORT chooses another, {flag} off does without\n"
    )
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_the_settings_reach_daemon_and_engine(home: Path) -> None:
    flags = {
        "socket": str(home / "s"),
        "listen": "[::1]:0",
        "api-key": "k,l",
        "tls-cert": "cert.pem",
        "request-timeout": "2.5",
        "log-max-size": "1KiB",
        "log-keep": "0",
        "allow-origin": "https://a.example",
        "threads": "3",
        "kv-cache-memory": "1MiB",
        "prefix-cache": "false",
        "drain-timeout": "2.5",
    }
    settings = settings_from(load_config(flags, {}, user_file=NOWHERE), ready_fd=9)
    assert settings.socket == str(home / "s")
    assert settings.listen == "[::1]:0"
    assert settings.api_keys == ("k", "l")
    assert settings.tls == TlsFiles(os.path.abspath("cert.pem"))
    assert settings.request_timeout == 2.5
    assert (settings.log_max_size, settings.log_keep) == (1024, 0)
    assert settings.allow_origin == ("https://a.example",)
    assert settings.drain_timeout == 2.5
    assert settings.ready_fd == 9
    assert settings.engine.threads == 3
    assert settings.engine.kv_cache_memory == 1 << 20
    assert settings.engine.prefix_cache is False
    assert settings_from(load_config({"listen": "off"}, {}, user_file=NOWHERE)).listen is None


def test_defaults_of_the_table_are_those_of_the_structs() -> None:
    from pagedd.engine.messages import EngineConfig
    from pagedd.server.settings import DaemonSettings

    settings = settings_from(load_config({}, {}, user_file=NOWHERE))
    plain = EngineConfig(model=settings.engine.model)
    assert settings.engine == plain
    assert settings == DaemonSettings(socket=settings.socket, engine=plain)


def test_start_has_a_flag_for_every_setting() -> None:
    from pagedd.engine.messages import EngineConfig

    flags = build_parser("start").known_flags
    for field in EngineConfig.__struct_fields__:
        assert "--" + field.replace("_", "-") in flags
