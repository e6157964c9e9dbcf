"""``pagedd cancel`` and ``pagedd reprioritize``: requests of other connections."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pagedd import protocol
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.records import ACCEPTED, WAITS
from tests.cli.terminal import environment, run


def test_cancel_names_the_request_by_its_number(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.explanations["#17"] = WAITS
    done = run("cancel", "17", env=env)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"pagedd: #17 is cancelled\n"
    assert daemon.next(protocol.Cancel) == protocol.Cancel("#17")


def test_reprioritize_tells_where_it_is_then(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.explanations["#17"] = WAITS
    done = run("reprioritize", "#17", "-5", env=env)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"pagedd: #17 has priority -5: swapped, goes on in 2 to 9.4 s\n"
    assert daemon.next(protocol.Reprioritize) == protocol.Reprioritize("#17", -5)


def test_a_client_s_name_is_looked_up(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.explanations = {"#17": WAITS, "r41": msgspec.structs.replace(WAITS, id="r41")}
    assert run("cancel", "r41", env=env).returncode == 0
    assert daemon.next(protocol.Cancel) == protocol.Cancel("#17")
    daemon.explanations["r41"] = protocol.Explanation("r41", "ended", [ACCEPTED])
    done = run("cancel", "r41", env=env)
    assert (done.returncode, done.stderr) == (1, b"pagedd: the request 'r41' has ended\n")


@pytest.mark.parametrize("arguments", [("cancel", ""), ("reprioritize", "", "1"), ("explain", "")])
def test_an_empty_name_is_a_mistake(env: dict[str, str], arguments: tuple[str, ...]) -> None:
    done = run(*arguments, env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    said = b"pagedd: the request's id is empty: pagedd explain lists what is open\n"
    assert done.stderr == said


def test_what_has_ended_meanwhile_has_no_place(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.explanations["#17"] = protocol.Explanation("#17", "ended", [ACCEPTED])
    done = run("reprioritize", "17", "3", env=env)
    assert (done.returncode, done.stderr) == (0, b"pagedd: #17 has ended meanwhile\n")


@pytest.mark.parametrize("arguments", [("cancel", "99"), ("reprioritize", "99", "1")])
def test_a_request_that_is_not_there(
    env: dict[str, str], daemon: FakeDaemon, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments, env=env)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"pagedd: there is no request '#99'\n"


@pytest.mark.parametrize("arguments", [("cancel", "9"), ("reprioritize", "9", "1")])
def test_no_daemon_is_69(home: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, env=environment(home))
    assert (done.returncode, done.stderr.count(b"\n")) == (69, 1)


def test_priority_of_generate_and_chat_is_sent(env: dict[str, str], daemon: FakeDaemon) -> None:
    assert run("generate", "--priority", "-7", "hi", env=env).returncode == 0
    assert daemon.next(protocol.Generate).priority == -7
    assert run("chat", "--priority=2147483647", env=env, stdin=b"hi").returncode == 0
    assert daemon.next(protocol.Generate).priority == 2**31 - 1
