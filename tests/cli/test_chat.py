"""``pagedd chat`` at a terminal and in a pipe."""

from __future__ import annotations

import signal

import pytest

from pagedd import protocol
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import on_terminal, run


def turns(sent: protocol.Generate) -> list[tuple[str, str]]:
    assert sent.messages is not None
    return [(message.role, message.content) for message in sent.messages]


@pytest.fixture(params=["xterm-256color", "dumb"])
def terminal_env(request: pytest.FixtureRequest, env: dict[str, str]) -> dict[str, str]:
    return {**env, "TERM": request.param}


def test_it_remembers_and_forgets(terminal_env: dict[str, str], daemon: FakeDaemon) -> None:
    with on_terminal("chat", "--system", "Be kind", env=terminal_env) as screen:
        before = screen.modes()
        for text in ("first", "second"):
            screen.expect(">>> ")
            screen.type(f"{text}\n")
            screen.expect("Hello")
        screen.expect(">>> ")
        screen.type("/clear\n")
        screen.expect("forgotten")
        screen.expect(">>> ")
        screen.type("third\n")
        screen.expect("Hello")
        screen.expect(">>> ")
        screen.type("\x04")
        assert screen.wait() == 0
        assert screen.modes() == before
    system = ("system", "Be kind")
    assert turns(daemon.next(protocol.Generate)) == [system, ("user", "first")]
    assert turns(daemon.next(protocol.Generate)) == [
        system,
        ("user", "first"),
        ("assistant", "Hello"),
        ("user", "second"),
    ]
    assert turns(daemon.next(protocol.Generate)) == [system, ("user", "third")]


def test_ctrl_c_ends_the_answer_and_not_the_session(
    terminal_env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.hold = True
    with on_terminal("chat", env=terminal_env) as screen:
        screen.expect(">>> ")
        screen.type("long\n")
        screen.expect("Hello")
        screen.type("\x03")
        assert daemon.next(protocol.Cancel).id == "chat"
        screen.expect(">>> ")
        daemon.hold = False
        screen.type("again\n")
        screen.expect("Hello")
        screen.expect(">>> ")
        screen.type("/exit\n")
        assert screen.wait() == 0
    assert turns(daemon.next(protocol.Generate))[:2] == [("user", "long"), ("assistant", "Hello")]


def test_ctrl_c_at_the_empty_prompt_leaves(
    terminal_env: dict[str, str], daemon: FakeDaemon
) -> None:
    with on_terminal("chat", env=terminal_env) as screen:
        before = screen.modes()
        screen.expect(">>> ")
        screen.type("\x03")
        assert screen.wait() == 130
        assert screen.modes() == before
    assert b"Traceback" not in screen.output


def test_ctrl_c_on_a_half_typed_line_drops_it(env: dict[str, str], daemon: FakeDaemon) -> None:
    pytest.importorskip("readline")
    with on_terminal("chat", env={**env, "TERM": "xterm-256color"}) as screen:
        screen.expect(">>> ")
        screen.type("half")
        screen.expect("half")
        screen.type("\x03")
        screen.expect(">>> ")
        screen.type("whole\n")
        screen.expect("Hello")
        screen.expect(">>> ")
        screen.type("\x03")
        assert screen.wait() == 130
    assert turns(daemon.next(protocol.Generate)) == [("user", "whole")]


@pytest.mark.parametrize("busy", [False, True])
def test_sigterm_leaves_the_terminal_as_it_was(
    terminal_env: dict[str, str], daemon: FakeDaemon, busy: bool
) -> None:
    daemon.hold = True
    with on_terminal("chat", env=terminal_env) as screen:
        before = screen.modes()
        screen.expect(">>> ")
        if busy:
            screen.type("long\n")
            screen.expect("Hello")
        screen.process.terminate()
        assert screen.wait() == 128 + signal.SIGTERM
        assert screen.modes() == before
    daemon.next(type(None))


def test_help_and_unknown_words(terminal_env: dict[str, str], daemon: FakeDaemon) -> None:
    with on_terminal("chat", env=terminal_env) as screen:
        screen.expect(">>> ")
        screen.type("/help\n")
        screen.expect("forget the conversation")
        screen.expect(">>> ")
        screen.type("/nothing\n")
        screen.expect("there is no /nothing")
        screen.expect(">>> ")
        screen.type("\n")
        screen.expect(">>> ")
        screen.type("/quit\n")
        assert screen.wait() == 0


def test_a_lost_connection_is_marked_and_the_session_goes_on(
    terminal_env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.drop = True
    with on_terminal("chat", env=terminal_env) as screen:
        screen.expect(">>> ")
        screen.type("first\n")
        screen.expect("Hello")
        screen.expect("[interrupted]")
        screen.expect("was lost")
        screen.expect(">>> ")
        daemon.drop = False
        screen.type("second\n")
        screen.expect("Hello")
        screen.expect(">>> ")
        screen.type("\x04")
        assert screen.wait() == 0
    daemon.next(protocol.Generate)
    assert turns(daemon.next(protocol.Generate)) == [
        ("user", "first"),
        ("assistant", "Hello"),
        ("user", "second"),
    ]


def test_a_refusal_is_told_and_forgotten(terminal_env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.refuse = protocol.Error("prompt_too_long", "9 tokens are too many", False)
    with on_terminal("chat", env=terminal_env) as screen:
        screen.expect(">>> ")
        screen.type("first\n")
        screen.expect("9 tokens are too many; /clear")
        screen.expect(">>> ")
        daemon.refuse = None
        screen.type("second\n")
        screen.expect("Hello")
        screen.expect(">>> ")
        screen.type("\x04")
        assert screen.wait() == 0
    daemon.next(protocol.Generate)
    assert turns(daemon.next(protocol.Generate)) == [("user", "second")]


def test_a_failure_in_the_middle_of_a_line_begins_another(
    terminal_env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.fail = protocol.Error("engine_failed", "the engine ended", True)
    with on_terminal("chat", env=terminal_env) as screen:
        screen.expect(">>> ")
        screen.type("first\n")
        screen.expect("Hello\r\npagedd: the engine ended\r\n>>> ")
        screen.type("\x04")
        assert screen.wait() == 0


def test_a_pipe_is_one_question(env: dict[str, str], daemon: FakeDaemon) -> None:
    done = run("chat", env=env, stdin=b"one\ntwo\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello", b"")
    assert turns(daemon.next(protocol.Generate)) == [("user", "one\ntwo")]
    done = run("chat", env=env, stdin=b"")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1


def test_the_model_cannot_steer_the_terminal_in_a_chat(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.texts = ["a\x1b", "]0;t\x07b\x9b2J"]
    with on_terminal("chat", env={**env, "NO_COLOR": "1", "TERM": "xterm"}) as screen:
        screen.expect(">>> ")
        screen.type("x\n")
        screen.expect("a]0;tb2J")
        screen.expect(">>> ")
        screen.type("\x04")
        assert screen.wait() == 0
    assert b"\x1b" not in screen.output
    assert b"\x07" not in screen.output
