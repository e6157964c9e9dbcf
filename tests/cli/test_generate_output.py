"""``pagedd generate``: what is written where, in pipes and on terminals."""

from __future__ import annotations

import json
import shlex
import subprocess
from subprocess import PIPE, STDOUT

import pytest

from pagedd import protocol
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import PAGEDD, on_terminal, run

# Clears the screen, sets a title, writes the clipboard, fakes a link, rings; split anywhere.
HOSTILE = (
    "A\x1b[2J\x1b[HB\x1b]0;title\x07C\x1b]52;c;ZXZpbA==\x07D"
    "\x1b]8;;https://evil.example\x1b\\E\x9b31mF\x9d0;x\x9cG\b\b\rH\tI\x00\x7f\nÄ漢😀"
)


def test_several_answers_are_told_apart(env: dict[str, str], daemon: FakeDaemon) -> None:
    done = run("generate", "--n=2", "hi", env=env)
    assert done.stdout == b"--- 1 of 2 (stop) ---\nHello\n--- 2 of 2 (stop) ---\nHello\n"


def test_json_is_the_final_frame_with_the_text(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.texts = ["caf", "é 😀\x1b[2J"]
    for encoding in ("utf-8", "ascii", "cp1252"):
        done = run("generate", "--json", "hi", env={**env, "PYTHONIOENCODING": encoding})
        found = json.loads(done.stdout.decode(encoding))
        assert found["choices"][0]["text"] == "café 😀\x1b[2J"
        assert found["usage"]["completion_tokens"] == 2
        assert done.stdout.count(b"\n") == 1
    assert not daemon.next(protocol.Generate).stream


def test_stats_go_to_standard_error(env: dict[str, str], daemon: FakeDaemon) -> None:
    done = run("generate", "--stats", "hi", env=env)
    assert done.stdout == b"Hello"
    assert b"5 tokens in (0 cached), 2 out" in done.stderr
    assert b"preempted" not in done.stderr
    for times, said in ((1, b"1 time"), (2, b"2 times")):
        daemon.reasons = ["pages were short"] * times
        again = run("generate", "--stats", "hi", env=env)
        assert again.stderr.endswith(b", preempted " + said + b" for 45 ms\n")


def test_a_message_begins_a_line_where_it_meets_the_answer(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    def both(*flags: str) -> bytes:
        """Standard output and standard error in one pipe."""
        command = [*PAGEDD, "generate", *flags, "hi"]
        done = subprocess.run(command, env=env, stdout=PIPE, stderr=STDOUT, timeout=60, check=False)
        return done.stdout

    assert both("--stats").startswith(b"Hello\npagedd: 5 tokens in")
    assert both("--stats", "--json").count(b"\n") == 2
    daemon.texts = ["Hello", "\n"]
    assert both("--stats").startswith(b"Hello\npagedd: 5 tokens in")
    daemon.texts, daemon.drop = ["Hello"], True
    assert both() == b"Hello\npagedd: the connection to the daemon was lost: gone\n"


def test_stats_begin_a_line_on_a_terminal_that_shows_the_end_of_a_pipe(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.texts = ["Hello"]  # in one piece: whether ``cat`` or the command writes first is open
    line = f"{shlex.join([*PAGEDD, 'generate', '--stats', 'hi'])} | cat"
    with on_terminal("-c", line, env={**env, "NO_COLOR": "1"}, pagedd=["/bin/sh"]) as screen:
        assert screen.wait() == 0
    assert b"Hello" in screen.output
    assert b"\r\npagedd: 5 tokens in" in screen.output


def test_one_token_is_not_tokens(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.prompt_tokens = 1
    assert b"pagedd: 1 token in (0" in run("generate", "--stats", "hi", env=env).stderr
    with on_terminal("generate", "hi", env={**env, "TERM": "xterm"}) as screen:
        assert screen.wait() == 0
    assert b"reading 1 token\x1b" in screen.output


def test_a_pipe_gets_every_byte(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.texts = list(HOSTILE)
    assert run("generate", "hi", env=env).stdout == HOSTILE.encode()


@pytest.mark.parametrize("width", [1, 2, 3, len(HOSTILE)])
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_terminal_gets_no_control_byte(
    env: dict[str, str], daemon: FakeDaemon, width: int, term: str
) -> None:
    daemon.texts = [HOSTILE[i : i + width] for i in range(0, len(HOSTILE), width)]
    # NO_COLOR: the command writes no sequences of its own either
    with on_terminal("generate", "hi", env={**env, "TERM": term, "NO_COLOR": "1"}) as screen:
        assert screen.wait() == 0
    shown = screen.output.decode()
    assert "A[2J[HB]0;titleC" in shown
    assert "EF" not in shown  # the text of a sequence stays visible
    assert "H\tI\r\nÄ漢😀\r\n" in shown
    assert not [c for c in shown if ord(c) < 32 and c not in "\t\r\n"]
    assert not [c for c in shown if 0x7F <= ord(c) < 0xA0]


def test_a_fancy_terminal_sees_only_sequences_of_the_command(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.texts = ["\x1b[31mred"]
    with on_terminal("generate", "hi", env={**env, "TERM": "xterm-256color"}) as screen:
        assert screen.wait() == 0
    assert b"\x1b[31m" not in screen.output
    assert b"[31mred\r\n" in screen.output


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_characters_that_cannot_be_written_are_replaced(
    env: dict[str, str], daemon: FakeDaemon, encoding: str
) -> None:
    daemon.texts = ["a😀", "b"]
    done = run("generate", "hi", env={**env, "PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stdout) == (0, b"a?b")


def test_preemptions_pass_by_on_one_line(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.reasons = [
        f"generate (#4) gave way to r{i} (#{i}), which lacked pages: priority -5 comes before 0, "
        "policy length; its 9 pages went to host memory."
        for i in range(3)
    ]
    with on_terminal("generate", "hi", env={**env, "TERM": "xterm", "COLUMNS": "60"}) as screen:
        assert screen.wait() == 0
    shown = screen.output.decode()
    notices = [part.removesuffix("\x1b[0m") for part in shown.split("\x1b[2m")[1:]]
    again = [notice for notice in notices if "waiting again" in notice]
    assert [len(notice.partition("\x1b")[0]) for notice in again] == [59, 59, 59]
    assert again[1].startswith("waiting again: gave way to r1 (#1), which lacked pages: p")
    # each takes the place of the one before it, and none is left
    assert shown.endswith("\r\x1b[KHello\r\n")
    assert shown.count("\n") == 1
    assert run("generate", "hi", env=env).stdout == b"Hello"
