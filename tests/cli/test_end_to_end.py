"""A real daemon with a tiny model, from ``start --detach`` to ``stop``, by the commands alone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.cli.terminal import PAGEDD, environment, run, with_built_kernels
from tests.tiny.models import build


def test_a_daemon_from_start_to_stop(home: Path) -> None:
    model = build("llama", home / "tiny")
    (home / "pagedd.toml").write_text(f'model = "{model}"\nnum-pages = 64\nthreads = 1\n')
    socket = home / "run" / "pagedd.sock"
    env = environment(home, PAGEDD_CONFIG=str(home / "pagedd.toml"), PAGEDD_SOCKET=str(socket))
    env = with_built_kernels(env)
    started = run("start", "--detach", "--listen", "127.0.0.1:0", env=env)
    try:
        assert started.returncode == 0, started.stderr
        lines = started.stdout.decode().splitlines()
        assert lines[0].endswith(": tiny")
        assert lines[1].strip() == f"unix:{socket}"
        tcp = lines[2].strip()
        (log,) = (home / ".local/state/pagedd").glob("pagedd-pagedd-*.log")
        assert lines[3].strip() == f"log {log}"
        assert "ready" in log.read_text()

        again = run("start", env=env)
        assert again.returncode == 1
        assert b"a daemon is running already" in again.stderr

        flags = ("--temperature", "0", "--max-tokens", "8", "--ignore-eos", "--json")
        answers = [run("generate", *flags, *url, "hi", env=env) for url in ([], ["--url", tcp])]
        texts = [json.loads(answer.stdout)["choices"][0]["text"] for answer in answers]
        assert texts[0] == texts[1]

        bench = run("bench", "--num-requests=4", "--input-len=8", "--output-len=4", env=env)
        assert b"4 requests in" in bench.stdout, bench.stderr
        status = json.loads(run("status", "--json", env=env).stdout)
        assert status["pages"]["total"] == 64
        assert status["requests"]["running"] == 0
        assert status["requests"]["finished_total"] == 7  # two answers, a warm-up, four requests
        os.kill(status["pid"], 0)
    finally:
        stopped = run("stop", env=env)
    assert stopped.returncode == 0
    assert f"stopped (pid {status['pid']})" in stopped.stderr.decode()
    assert not socket.exists()
    assert run("status", env=env).returncode == 3


def test_a_daemon_that_is_short_of_slots_says_why(home: Path) -> None:
    # an answer that nobody ends takes minutes
    model = build("llama", home / "tiny", max_position_embeddings=1 << 20)
    settings = f'model = "{model}"\nnum-pages = 4096\nthreads = 1\nmax-num-seqs = 1\n'
    (home / "pagedd.toml").write_text(settings)
    socket = home / "run" / "pagedd.sock"
    env = environment(home, PAGEDD_CONFIG=str(home / "pagedd.toml"), PAGEDD_SOCKET=str(socket))
    env = with_built_kernels(env)
    started = run("start", "--detach", "--listen", "off", env=env)
    assert started.returncode == 0, started.stderr
    try:
        with ExitStack() as stack:
            events = stack.enter_context(followed(env))
            first, second, urgent = (
                stack.enter_context(answering(env, events, *flags))
                # the last is long enough to be asked about once it has its turn
                for flags in ((), ("--max-tokens=4",), ("--max-tokens=2000", "--priority=5"))
            )
            _check_reasons(env)
            done = run("reprioritize", "3", "-1", env=env)
            assert done.stderr.startswith(b"pagedd: #3 has priority -1: ")
            assert until(events, "preempted", 1)["taker_handle"] == 3
            assert urgent.wait(60) == 0
            assert run("cancel", "1", env=env).stderr == b"pagedd: #1 is cancelled\n"
            assert until(events, "finished", 1)["reason"] == "cancelled"
            assert first.wait(60) == 0
            assert second.wait(60) == 0
        assert run("explain", env=env).stdout == b"no request is open\n"
        assert run("explain", "3", env=env).stdout.startswith(b"#3 generate  ended\n")
        done = run("cancel", "3", env=env)
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    finally:
        run("stop", env=env)


def _check_reasons(env: dict[str, str]) -> None:
    """The first one runs, and two wait for its slot."""
    lines = run("explain", env=env).stdout.decode().splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["#1", "generate", "decoding"],
        ["#2", "generate", "waiting"],
        ["#3", "generate", "waiting"],
    ]
    shown = run("explain", "3", env=env).stdout.decode()
    for part in (
        "  limit   slots in the batch",
        "  short   1",
        "  behind  1 in the queue, #2 generate first",
        "  held by      priority  pages  alone",
    ):
        assert part in shown
    wait = json.loads(run("explain", "2", "--json", env=env).stdout)["reasons"][-1]
    assert (wait["limit"], wait["short"]) == ("slots", 1)
    assert [holder["handle"] for holder in wait["holders"]] == [1]


@contextmanager
def followed(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """``pagedd events --follow --json``"""
    command = [*PAGEDD, "events", "--follow", "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def answering(
    env: dict[str, str], events: subprocess.Popen[bytes], *flags: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A long answer, or what ``flags`` make of it, once the daemon has taken the request."""
    command = [*PAGEDD, "generate", "--ignore-eos", "--raw", *flags, "hi"]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as process:
        try:
            until(events, "accepted")
            yield process
        finally:
            process.kill()


def until(events: subprocess.Popen[bytes], kind: str, handle: int | None = None) -> dict[str, Any]:
    """The next event of this kind, of this request."""
    assert events.stdout is not None
    for line in events.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["kind"] == kind and handle in (None, event["handle"]):
            return event
    raise AssertionError(f"no event {kind} came")
