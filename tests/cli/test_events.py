"""``pagedd events``: the past, the future, filters, and every way that it ends."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from pagedd import protocol
from pagedd.cli.record_view import Paper, event_lines
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.records import (
    ACCEPTED,
    ADMITTED,
    HOSTILE,
    NOW,
    PREEMPTED,
    RUNNING,
    WAITING,
    event,
)
from tests.cli.terminal import PAGEDD, environment, on_terminal, run, running

LINE = (
    "22:13:19.660  preempted      #17 r41  gave way to r3 (#5), which lacked pages: priority -5 "
    "comes before 0, policy length; its 9 pages went to host memory (estimated: swap 2.1 ms, "
    "recompute 45 ms)."
)
FOLDED = """\
22:13:19.660  preempted      #17 r41  gave way to r3 (#5), which lacked pages:
                                      priority -5 comes before 0, policy length;
                                      its 9 pages went to host memory
                                      (estimated: swap 2.1 ms, recompute 45 ms)."""
EVICTED = protocol.Event(at=NOW, kind="evicted", text="3 cached pages made room.", pages=3)
MISSED = protocol.Event(at=NOW, kind="missed", text="42 events were not sent.", count=42)


@pytest.fixture
def env(env: dict[str, str]) -> dict[str, str]:
    return {**env, "TZ": "UTC"}


def numbered(count: int) -> list[protocol.Event]:
    """Events of one request each."""
    records = [msgspec.structs.replace(ACCEPTED, handle=i, request=f"r{i}") for i in range(count)]
    return [event(record) for record in records]


def test_a_pipe_gets_one_line_an_event(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past = [event(ACCEPTED), event(PREEMPTED, PREEMPTED.at), EVICTED]
    done = run("events", env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 3
    assert lines[1] == LINE
    assert lines[2] == "22:13:20.000  evicted               3 cached pages made room."
    assert b"\x1b" not in done.stdout


def test_a_terminal_gets_it_folded_below_itself(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past = [event(PREEMPTED, PREEMPTED.at)]
    for more in ({"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "xterm"}, {"TERM": "dumb"}):
        with on_terminal("events", env={**env, "COLUMNS": "80", **more}) as screen:
            assert screen.wait() == 0
        shown = screen.output.decode().replace("\r\n", "\n")
        assert ("\x1b[33m" in shown) is (more == {"TERM": "xterm"})
        assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == FOLDED + "\n"


def test_the_last_lines_are_asked_for_and_shown(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past = numbered(30)
    for flags, first, history in ((["--lines", "3"], 27, 3), ([], 10, 20)):
        done = run("events", *flags, env=env)
        assert daemon.next(protocol.Subscribe) == protocol.Subscribe("events", history=history)
        lines = done.stdout.decode().splitlines()
        assert [line.split()[2] for line in lines] == [f"#{i}" for i in range(first, 30)]
    assert run("events", "--lines", "0", env=env).stdout == b""


def test_a_past_that_comes_in_parts_is_read_to_its_end(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.past = numbered(3)
    for flags, lines in (([], 5), (["--lines=3"], 3)):
        daemon.future = [[event(ADMITTED)], [event(ADMITTED)]]
        assert run("events", *flags, env=env).stdout.count(b"\n") == lines


def test_what_a_busy_daemon_does_meanwhile_is_not_waited_out(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.past, daemon.future = numbered(3), [[event(ADMITTED, time.time() + 60)]] * 50
    assert run("events", env=env).stdout.count(b"\n") == 4


def test_a_filter_looks_at_the_whole_past(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past = [event(ADMITTED), event(PREEMPTED), *numbered(15), event(RUNNING)]
    for flags, kinds in (
        (["--request", "17"], ["admitted", "preempted"]),
        (["--request", "#17"], ["admitted", "preempted"]),
        (["--request", "r41", "--lines", "1"], ["preempted"]),
        (["--kind", "preempted", "--kind", "admitted"], ["admitted", "preempted"]),
        (["--kind", "admitted", "--request", "5"], []),
    ):
        done = run("events", *flags, env=env)
        assert daemon.next(protocol.Subscribe).history == protocol.MAX_HISTORY
        assert [line.split()[1] for line in done.stdout.decode().splitlines()] == kinds


def test_json_is_a_frame_a_line(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past = [event(WAITING), EVICTED]
    lines = run("events", "--json", env=env).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["kind"] for each in found] == ["waiting", "evicted"]
    assert found[0]["type"] == "event"
    assert found[0]["short"] == 6
    assert "request" not in found[1]


def test_following_goes_on_until_ctrl_c(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past, daemon.future = [event(ACCEPTED)], [[event(ADMITTED), MISSED]]
    command = [*PAGEDD, "events", "--follow", "--kind", "accepted"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"  accepted " in process.stdout.readline()
        # that some were missed is told whatever the filter is
        assert b"42 events were not sent." in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stdout.read() == b""


def test_ctrl_c_on_a_terminal(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.future = [[MISSED]]
    with on_terminal("events", "--follow", env={**env, "TERM": "xterm"}) as screen:
        screen.expect("not sent.")
        screen.type("\x03")
        assert screen.wait() == 130
    assert b"Traceback" not in screen.output


def test_following_ends_with_69_when_the_daemon_does(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.future, daemon.drop = [[event(ADMITTED)]], True
    done = run("events", "--follow", "--json", env=env)
    assert done.returncode == 69
    assert json.loads(done.stdout)["kind"] == "admitted"
    assert done.stderr == b"pagedd: the daemon is shutting down, the connection was closed\n"


def test_a_reader_that_leaves_ends_it_quietly(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past = [event(ACCEPTED)]
    with running("events", "--follow", env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        # nothing more is written: that nobody reads is noticed all the same
        assert process.communicate(timeout=30)[1] == b""
        assert process.returncode == 0


def test_a_pipe_that_is_closed_from_the_start(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.past = numbered(20)
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([*PAGEDD, "events"], env=env, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 0


def test_a_daemon_without_a_feed_says_so(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.refuse = protocol.Error("bad_request", "subscribe is not available", False)
    done = run("events", env=env)
    assert (done.returncode, done.stderr) == (1, b"pagedd: subscribe is not available\n")


def test_no_daemon_is_69(home: Path) -> None:
    for flags in ([], ["--follow"]):
        assert run("events", *flags, env=environment(home)).returncode == 69


def test_hostile_events_are_shown_as_text() -> None:
    for at in (0.0, float("nan"), 1e300, -1e300):
        wild = msgspec.structs.replace(
            PREEMPTED, at=at, request=HOSTILE, text=HOSTILE, kind=HOSTILE
        )
        for line in event_lines(wild, Paper(io.StringIO())):
            assert line.isprintable()
