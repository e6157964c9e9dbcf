"""A real daemon with a tiny model, from ``start --detach`` to ``stop``, by the commands alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.cli.terminal import environment, run
from tests.tiny.models import build


def test_a_daemon_from_start_to_stop(home: Path) -> None:
    model = build("llama", home / "tiny")
    (home / "pagedd.toml").write_text(f'model = "{model}"\nnum-pages = 64\nthreads = 1\n')
    socket = home / "run" / "pagedd.sock"
    env = environment(home, PAGEDD_CONFIG=str(home / "pagedd.toml"), PAGEDD_SOCKET=str(socket))
    started = run("start", "--detach", "--listen", "127.0.0.1:0", env=env)
    try:
        assert started.returncode == 0, started.stderr
        lines = started.stdout.decode().splitlines()
        assert lines[0].endswith(": tiny")
        assert lines[1].strip() == f"unix:{socket}"
        tcp = lines[2].strip()
        log = home / ".local/state/pagedd/pagedd.log"
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
