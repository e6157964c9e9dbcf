"""Start a daemon as a process of its own and wait until it is ready."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pagedd.config import Config, default_socket
from pagedd.errors import PageddError, UsageError
from pagedd.interpreter import module_command
from pagedd.paths import state_dir

LOG_TAIL_LINES = 12
READY = "ready"
STOP_TIMEOUT_S = 15.0


def default_log(config: Config) -> Path:
    """Where a daemon logs that has no terminal and no ``--log-file``: a file for each socket.

    ``pagedd.log`` in the state folder, and for another socket than the default one
    ``pagedd-NAME-SUM.log``, of the socket's name and a checksum of its path.
    """
    name = "pagedd.log"
    if config["socket"] is not None:
        usual = None
        with suppress(UsageError):  # the default one cannot be had: this is another
            usual = default_socket()
        if config.socket != usual:
            stem, path = config.socket.name.removesuffix(".sock"), os.fsencode(config.socket)
            name = f"pagedd-{stem}-{zlib.crc32(path):08x}.log"
    return state_dir() / name


def launch(
    arguments: Sequence[str],
    log_file: Path,
    *,
    own_session: bool,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Run ``pagedd start ARGUMENTS``; returns when it is ready.

    Its standard error goes to ``log_file``. ``own_session`` detaches it from this terminal.
    Errors: a ``PageddError`` with the daemon's reason and the end of its log.
    """
    log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    offset = log_file.stat().st_size if log_file.exists() else 0
    reader, writer = os.pipe()
    command = [*module_command("pagedd.cli.main"), "start", *arguments]
    command += ["--ready-fd", str(writer)]
    with open(log_file, "ab") as log:
        try:
            daemon = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=own_session,
                env=None if environ is None else dict(environ),
            )
        finally:
            os.close(writer)
    try:
        with open(reader, "rb") as pipe:
            answer = pipe.readline().decode("utf-8", "replace").strip()
    except BaseException:
        end(daemon)
        raise
    if answer == READY:
        return daemon
    code = daemon.wait()
    raise _failure(answer, code, log_file, offset)


def end(daemon: subprocess.Popen[bytes]) -> None:
    """Stop it, by force when it does not stop by itself."""
    daemon.terminate()
    try:
        daemon.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _failure(answer: str, code: int, log_file: Path, offset: int) -> PageddError:
    kind = UsageError if code == UsageError.exit_code else PageddError
    tail = _tail(log_file, offset)
    if answer:
        return kind(answer)
    reason = f"it exited with {code}" if code >= 0 else f"signal {-code} ended it"
    if not tail:
        return kind(f"the daemon did not start: {reason}")
    return kind(f"the daemon did not start: {reason}; the end of {log_file}:\n{tail}")


def _tail(log_file: Path, offset: int) -> str:
    """What this start has logged, its last lines."""
    with open(log_file, "rb") as log:
        log.seek(offset)
        lines = log.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])
