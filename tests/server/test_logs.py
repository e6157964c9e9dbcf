"""The log: put aside by size, begun anew on demand, and no trouble when the disk is full."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagedd.server.logs import Log, LogFile
from tests.engine.fake_engine import SLOW
from tests.server.harness import ROOT, Daemon, until

Start = Callable[..., Daemon]


def line(log: Log, text: str, **fields: object) -> None:
    log.handle(logging.makeLogRecord({"msg": text, "levelname": "INFO", "name": "t", **fields}))


def texts(path: Path) -> list[str]:
    return [written.rpartition(": ")[2] for written in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "d.log"


@pytest.fixture
def log(path: Path) -> Iterator[LogFile]:
    log = LogFile(path, 200, 2)
    yield log
    log.close()


def test_a_file_that_has_its_size_is_put_aside_and_few_are_kept(log: LogFile, path: Path) -> None:
    for number in range(40):
        line(log, f"line-{number:02}")
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["d.log", "d.log.1", "d.log.2"]
    assert all(file.stat().st_size <= 300 for file in files)
    kept = [*texts(files[2]), *texts(files[1]), *texts(files[0])]
    assert kept == [f"line-{number:02}" for number in range(40 - len(kept), 40)]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}


def test_none_kept_and_no_limit(path: Path) -> None:
    alone = LogFile(path, 200, 0)
    for number in range(40):
        line(alone, f"line-{number:02}")
    assert list(path.parent.iterdir()) == [path]
    assert texts(path)[-1] == "line-39"
    assert path.stat().st_size <= 300
    alone.limit(0, 0)
    for number in range(40):
        line(alone, f"line-{number:02}")
    assert texts(path)[-40:] == [f"line-{number:02}" for number in range(40)]
    alone.close()


def test_what_somebody_else_puts_aside_is_begun_anew(log: LogFile, path: Path) -> None:
    line(log, "old")
    path.rename(path.with_name("elsewhere"))
    line(log, "new")
    assert texts(path) == ["new"]
    path.unlink()
    log.reopen()
    assert path.read_text() == ""
    path.unlink()
    path.parent.chmod(0o500)  # root may write there all the same
    line(log, "kept somewhere")
    path.parent.chmod(0o700)


def test_size_is_counted_over_starts(path: Path) -> None:
    path.write_bytes(b"x" * 200)
    log = LogFile(path, 200, 1)
    line(log, "first")
    assert texts(path) == ["first"]
    assert path.with_name("d.log.1").stat().st_size == 200
    log.close()


def full_then_free() -> tuple[Log, int]:
    """A log on a pipe that nobody reads: full for a while."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    return Log(writer), reader


def test_lines_that_are_lost_are_counted_and_told_once() -> None:
    log, reader = full_then_free()
    count = 0
    while not log._lost:
        line(log, f"{count:05} " + "x" * 1000)
        count += 1
    for _ in range(9):
        line(log, "lost too" + "x" * 1000)
    got = bytearray()
    while True:
        try:
            got += os.read(reader, 1 << 16)
        except BlockingIOError:
            break
    line(log, "after")
    line(log, "and on")
    got += os.read(reader, 1 << 16)
    written = got.decode().splitlines()
    assert [each.rpartition(": ")[2] for each in written[-2:]] == ["after", "and on"]
    assert "WARNING" in written[-3]
    assert "10 lines could not be written here: " in written[-3]
    assert not any("lost too" in each for each in written)
    os.close(reader)
    os.close(log.fd)


@pytest.mark.parametrize("target", ["/dev/full", "a full disk"])
def test_a_full_disk_stops_nothing(start: Start, tmp_path: Path, target: str) -> None:
    if target == "/dev/full" and not os.path.exists(target):
        pytest.skip("there is no /dev/full")
    log = target if target == "/dev/full" else str(tmp_path / "d.log")
    daemon = start(log_file=log, log_level="debug", log_max_size=4096, log_keep=1)
    with daemon.client() as client:
        if target != "/dev/full":
            # as a full disk does, for this process alone: no file may grow any more
            _, most = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (0, most))
        for at in range(30):
            done = client.generate(f"a{at}", prompt="abc", params={"max_tokens": 2})[-1]
            assert done["type"] == "done"
            daemon.signal(10)  # SIGUSR1: the status and all stacks
        assert client.status()["state"] == "ready"
    code, errors = daemon.stop()
    assert code == 0
    assert "Traceback" not in errors
    assert errors.count("\n") <= 2


def test_a_detached_daemon_writes_to_one_file_whoever_prints(tmp_path: Path) -> None:
    """Standard error is the log's file there, and goes along when that is put aside."""
    path = tmp_path / "d.log"
    code = (
        "import logging, os, sys\n"
        "from pathlib import Path\n"
        "from pagedd.server.logs import configure\n"
        "log = configure('info', sys.argv[1], 300, 1)\n"
        "for number in range(20): logging.info('line %d', number)\n"
        "os.write(2, b'printed last\\n')\n"
        "os.write(1, b'and out\\n')\n"
    )
    with path.open("ab") as file:
        command = [sys.executable, "-c", code, str(path)]
        subprocess.run(command, check=True, stdout=file, stderr=file, cwd=ROOT)
    assert path.read_text().splitlines()[-2:] == ["printed last", "and out"]
    assert path.stat().st_size < 600


def test_standard_error_that_is_full_or_closed_stops_nothing(tmp_path: Path) -> None:
    code = (
        "import logging, sys\n"
        "from pagedd.server.logs import configure, say\n"
        "configure('info', None)\n"
        "for _ in range(50): logging.error('a line')\n"
        "say('ready')\n"
        "open(sys.argv[1], 'w').write('to the end')\n"
    )
    for redirection in ("2>/dev/full", "2>&-", "2>&- >&- <&-"):
        end = tmp_path / "end"
        end.unlink(missing_ok=True)
        shell = f'exec "{sys.executable}" -c "$0" "$1" {redirection}'
        done = subprocess.run(["sh", "-c", shell, code, str(end)], cwd=ROOT, timeout=60)
        assert done.returncode == 0
        assert end.read_text() == "to the end"


def test_requests_end_although_the_log_was_full_all_the_time(start: Start) -> None:
    daemon = start(log_file="/dev/full", log_level="debug")
    with daemon.client() as client:
        client.send(type="generate", id="a", prompt="abc", params={"seed": SLOW, "max_tokens": 20})
        os.kill(until(lambda: client.status()["engine_pid"], "an engine"), 9)
        assert client.until("done", "error")["id"] == "a"
        daemon.until_state("ready")
    assert daemon.stop()[0] == 0
