"""A detached daemon with a tiny model: its log is put aside, its keys and settings are reloaded."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.cli.terminal import environment, run
from tests.real_daemon import daemon, wire
from tests.server.harness import until
from tests.tiny.models import build


@pytest.mark.slow
def test_a_detached_daemon_is_reloaded_and_its_log_put_aside() -> None:
    with tempfile.TemporaryDirectory(prefix="pagedd-") as base:
        home = Path(base) / "h"
        home.mkdir()
        keys, log, toml = home / "keys", home / "d.log", home / "p.toml"
        keys.write_text("# first\nold-key\n")
        toml.write_text('log-level = "info"\nmax-num-seqs = 3\n')
        flags = [f"--api-key=@{keys}", f"--log-file={log}", f"--config={toml}"]
        flags += ["--log-max-size=1KiB", "--log-keep=2", "--listen=127.0.0.1:0"]
        model = str(build("llama", home / "tiny"))
        env = environment(home)
        with daemon(home, model, *flags) as url, wire(url) as client:
            status = client.status()
            tcp = next(each for each in status["endpoints"] if each.startswith("ws:"))

            def reached(key: str) -> bool:
                return run("status", "--url", tcp, "--api-key", key, env=env).returncode == 0

            assert [reached(key) for key in ("old-key", "new-key")] == [True, False]
            keys.write_text("new-key\nanother\n")
            toml.write_text('log-level = "debug"\nmax-num-seqs = 4\n')
            os.kill(status["pid"], signal.SIGHUP)
            until(lambda: reached("new-key"), "the other key")
            assert [reached(key) for key in ("old-key", "another")] == [False, True]
            text = "".join(path.read_text() for path in sorted(home.glob("d.log*")))
            assert "changed --api-key, --log-level" in text
            assert "only a restart changes --max-num-seqs" in text
            assert "new-key" not in text
            for _ in range(20):
                os.kill(status["pid"], signal.SIGUSR1)
                client.status()
            os.kill(status["engine_pid"], signal.SIGKILL)
            until(lambda: client.status()["engine_pid"] not in (0, status["engine_pid"]), "another")
            until(lambda: client.status()["state"] == "ready", "its readiness")
        names = {path.name for path in home.glob("d.log*")}
        assert names == {"d.log", "d.log.1", "d.log.2"}
        # the stacks of SIGUSR1 are written at once, so a file may grow beyond its limit by them
        assert all(path.stat().st_size < 20_000 for path in home.glob("d.log*"))
        assert "ready: " in log.read_text()
