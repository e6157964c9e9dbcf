"""``pagedd explain``: what it asks a daemon, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from pagedd import protocol
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.records import (
    ACCEPTED,
    BEHIND,
    HOSTILE,
    NOW,
    RUNS,
    TURN,
    WAITING,
    WAITS,
    event,
)
from tests.cli.terminal import environment, on_terminal, run


def test_the_daemon_is_asked_by_number_and_json_is_the_frame(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.explanations["#17"] = WAITS
    for word in ("17", "#17"):
        done = run("explain", word, "--json", env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        assert daemon.next(protocol.Explain).id == "#17"
        found = json.loads(done.stdout)
        assert (found["id"], found["state"], found["eta_ms"]) == ("#17", "swapped", [2000, 9400])
        assert found["reasons"][-1]["holders"][0]["alone"] == 50
        assert done.stdout.count(b"\n") == 1


def test_a_client_s_own_name_is_sent_as_it_is(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.explanations["r41"] = msgspec.structs.replace(WAITS, id="r41")
    done = run("explain", "r41", env=env)
    assert done.returncode == 0
    assert done.stdout.decode().startswith("#17 r41  swapped  goes on in 2 to 9.4 s\n\nhow it")
    assert b"\x1b" not in done.stdout


def test_a_request_that_is_not_there_is_one_line(env: dict[str, str], daemon: FakeDaemon) -> None:
    for flags in ([], ["--json"]):
        done = run("explain", "99", *flags, env=env)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr == b"pagedd: there is no request '#99'\n"


def test_without_a_request_the_open_ones_are_listed(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    ended = protocol.Event(at=NOW, kind="finished", text="r9 (#9) finished.", handle=9)
    begun = [msgspec.structs.replace(ACCEPTED, handle=handle) for handle in (9, 18, 17, 5, 30)]
    daemon.past = [*map(event, begun), ended, protocol.Event(at=NOW, kind="evicted", text="x")]
    daemon.explanations = {"#17": WAITS, "#18": BEHIND, "#5": RUNS}  # 30 has just ended
    done = run("explain", env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.split()[0] for line in done.stdout.decode().splitlines()] == ["#5", "#17", "#18"]
    as_json = run("explain", "--json", env=env)
    assert [json.loads(line)["id"] for line in as_json.stdout.splitlines()] == ["#5", "#17", "#18"]


def test_when_nothing_is_open_it_says_so(env: dict[str, str], daemon: FakeDaemon) -> None:
    done = run("explain", env=env)
    assert (done.returncode, done.stdout) == (0, b"no request is open\n")
    assert run("explain", "--json", env=env).stdout == b""


def test_a_terminal_sees_colours_and_a_hostile_name_does_nothing(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.explanations["#18"] = msgspec.structs.replace(
        BEHIND, reasons=[msgspec.structs.replace(TURN, request=HOSTILE, text=HOSTILE), WAITING]
    )
    with on_terminal("explain", "18", env={**env, "TERM": "xterm-256color"}) as screen:
        assert screen.wait() == 0
    assert b"\x1b[33mwaiting" in screen.output
    for forbidden in (b"\x1b[2J", b"\x07", b"\xc2\x9b"):
        assert forbidden not in screen.output


def test_no_daemon_is_69(home: Path) -> None:
    for arguments in (["17"], []):
        done = run("explain", *arguments, env=environment(home))
        assert (done.returncode, done.stdout) == (69, b"")
        assert done.stderr.count(b"\n") == 1
