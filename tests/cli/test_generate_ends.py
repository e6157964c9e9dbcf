"""``pagedd generate``: how it ends before the answer does, and before it begins."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pagedd import protocol
from pagedd.cli.answer import ask
from pagedd.cli.connection import open_ready
from pagedd.cli.interrupt import Interrupts
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import PAGEDD, environment, on_terminal, run, running


def socketpair() -> tuple[int, int]:
    """What some programs give their children for standard output."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def test_a_lost_connection_keeps_what_came(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.drop = True
    done = run("generate", "hi", env=env)
    assert (done.returncode, done.stdout) == (69, b"Hello")
    assert done.stderr == b"pagedd: the connection to the daemon was lost: gone\n"


def test_ctrl_c_cancels_on_the_daemon(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.hold = True
    with on_terminal("generate", "hi", env=env) as screen:
        before = screen.modes()
        screen.expect("Hello")
        screen.type("\x03")
        assert daemon.next(protocol.Cancel).id == "generate"
        assert screen.wait() == 130
        assert screen.modes() == before
    assert b"Traceback" not in screen.output


def test_ctrl_c_before_the_first_token(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.hold, daemon.texts = True, []
    process = subprocess.Popen([*PAGEDD, "generate", "hi"], env=env, stdout=subprocess.PIPE)
    daemon.next(protocol.Generate)
    process.send_signal(signal.SIGINT)
    assert daemon.next(protocol.Cancel).id == "generate"
    assert process.communicate(timeout=30)[0] == b""
    assert process.returncode == 130


def test_a_killed_command_leaves_its_connection(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.hold = True
    with subprocess.Popen([*PAGEDD, "generate", "hi"], env=env) as process:
        daemon.next(protocol.Generate)
        process.kill()
        daemon.next(type(None))


def ends_quietly(process: subprocess.Popen[bytes]) -> None:
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 0


@pytest.mark.parametrize("flag", ["--raw", "--json"])
@pytest.mark.parametrize("texts", [["Hel", "lo"], []])
def test_a_pipe_that_is_closed_from_the_start(
    env: dict[str, str], daemon: FakeDaemon, texts: list[str], flag: str
) -> None:
    daemon.hold, daemon.texts = True, texts
    reader, writer = os.pipe()
    os.close(reader)
    with running("generate", flag, "hi", env=env, stdout=writer) as process:
        os.close(writer)
        assert daemon.next(protocol.Cancel).id == "generate"
        ends_quietly(process)


def test_who_leaves_while_a_token_is_on_its_way(env: dict[str, str], daemon: FakeDaemon) -> None:
    """The daemon has to hear of it, though it finds the connection closed when it sends."""
    daemon.hold, daemon.gate = True, threading.Event()
    with running("generate", "hi", env=env) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"Hel"
        process.stdout.close()
        ends_quietly(process)
        daemon.gate.set()
        assert daemon.next(protocol.Cancel).id == "generate"


@pytest.mark.parametrize("pair", [os.pipe, socketpair])
def test_who_leaves_is_noticed_though_no_more_tokens_come(
    env: dict[str, str], daemon: FakeDaemon, pair: Callable[[], tuple[int, int]]
) -> None:
    daemon.hold = True
    reader, writer = pair()
    with running("generate", "hi", env=env, stdout=writer) as process:
        os.close(writer)
        with open(reader, "rb") as file:
            assert file.read(5) == b"Hello"
        assert daemon.next(protocol.Cancel).id == "generate"
        ends_quietly(process)


def test_output_that_fails_cancels(daemon: FakeDaemon) -> None:
    """Whoever reads may leave between the look at that and the write."""
    daemon.hold = True

    def show(text: str) -> None:
        raise BrokenPipeError

    with Interrupts() as interrupts, open_ready(daemon.url, None, interrupts) as connection:
        with pytest.raises(BrokenPipeError):
            ask(connection, protocol.Generate(id="own", prompt="hi"), interrupts, show)
        assert daemon.next(protocol.Cancel).id == "own"


def test_who_leaves_while_the_model_is_loading(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.max_model_len = 0
    with running("generate", "hi", env=env) as process:
        assert process.stdout is not None
        daemon.next(type(None))  # it looked once
        process.stdout.close()
        ends_quietly(process)


def test_it_waits_while_the_model_is_loading(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.max_model_len = 0
    process = subprocess.Popen([*PAGEDD, "generate", "hi"], env=env, stdout=subprocess.PIPE)
    daemon.next(type(None))  # it looked once
    daemon.max_model_len = 2048
    assert process.communicate(timeout=30)[0] == b"Hello"
    assert process.returncode == 0


def test_ctrl_c_while_the_model_is_loading(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.max_model_len = 0
    process = subprocess.Popen([*PAGEDD, "generate", "hi"], env=env, stderr=subprocess.PIPE)
    daemon.next(type(None))
    process.send_signal(signal.SIGINT)
    assert b"interrupted" in process.communicate(timeout=30)[1]
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("queue_full", 75), ("prompt_too_long", 1), ("engine_failed", 1), ("never heard of", 1)],
)
def test_a_refusal_is_one_line_with_its_exit_code(
    env: dict[str, str], daemon: FakeDaemon, code: str, exit_code: int
) -> None:
    daemon.refuse = protocol.Error(code, "no\x1b[2J\nroom", False)
    for flags in ([], ["--json"]):
        done = run("generate", *flags, "hi", env=env)
        assert (done.returncode, done.stdout) == (exit_code, b"")
        assert done.stderr == b"pagedd: no[2J room\n"


def test_no_daemon_is_69_and_status_says_3(home: Path) -> None:
    env = environment(home)
    assert run("generate", "hi", env=env).returncode == 69
    assert run("chat", env=env, stdin=b"hi").returncode == 69
    assert run("status", env=env).returncode == 3
    (home / "file").write_text("not a socket")
    assert run("generate", "--url", f"unix:{home / 'file'}", "hi", env=env).returncode == 69
    assert run("status", "--url", "ws://127.0.0.1:1", env=env).returncode == 3


@pytest.mark.parametrize(("status", "code"), [(401, 1), (403, 1), (404, 1), (503, 69)])
def test_a_refused_handshake_is_told_once(
    env: dict[str, str], daemon: FakeDaemon, status: int, code: int
) -> None:
    daemon.http_status = status
    done = run("generate", "hi", env=env)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert b"--api-key" in done.stderr or str(status).encode() in done.stderr
