"""``pagedd generate``: how it ends before the answer does, and before it begins."""

from __future__ import annotations

import os
import signal
import subprocess

from pagedd import protocol
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import PAGEDD, on_terminal, run


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


def test_a_closed_pipe_ends_quietly_and_cancels(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.hold = True
    reader, writer = os.pipe()
    os.close(reader)
    command = [*PAGEDD, "generate", "hi"]
    process = subprocess.Popen(command, env=env, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert daemon.next(protocol.Cancel).id == "generate"
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 0


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
