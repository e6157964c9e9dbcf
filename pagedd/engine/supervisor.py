"""Keeps an engine process alive: start, watch, restart, give up.

States: ``loading`` until the engine is ready; ``ready``; ``stalled`` while its process is stopped,
or there is work and it has neither reported nor computed for :data:`STILL_S`, or not reported for
:data:`STALL_S`; ``failed`` between the death of an engine and the next start.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Literal, Protocol, assert_never

import anyio
from anyio.abc import Process

from pagedd.engine.link import DaemonLink
from pagedd.engine.messages import (
    Command,
    EngineConfig,
    Fatal,
    Loading,
    Ready,
    Report,
    Step,
)
from pagedd.engine.output import logged
from pagedd.engine.pulse import Pulse
from pagedd.errors import EngineFailed, PageddError, UsageError
from pagedd.interpreter import module_command

logger = logging.getLogger(__name__)

ENGINE_COMMAND = tuple(module_command("pagedd.engine.main"))
STALL_S = 30.0  # work and no report for so long: stalled
STILL_S = 3.0  # and the process has computed nothing meanwhile
LOOK_S = 1.0  # at whether it moves
BACKOFF_FIRST_S = 0.5
BACKOFF_LIMIT_S = 10.0
HEALTHY_S = 60.0  # ready for so long, or a request answered: earlier failures are forgotten
MAX_FAILURES = 5  # in a row
GRACE_S = 0.5  # between asking an engine to end and killing it

State = Literal["loading", "ready", "stalled", "failed"]

# What glibc (since 2.35) hands out lies in huge pages where the system has them: a step touches
# much memory that others have driven out since the last one.
_IN_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class EngineOwner(Protocol):
    """Who is told what the engine does. Called in the daemon's event loop; must not block."""

    def has_work(self) -> bool:
        """Is a request open that the engine must answer?"""

    def engine_loading(self, phase: str, fraction: float) -> None:
        """Progress of the load."""

    async def engine_ready(self, ready: Ready) -> None:
        """A new engine; the supervisor is ``ready`` when this returns."""

    def engine_serves(self) -> None:
        """It can be sent commands from now on."""

    def engine_step(self, step: Step) -> None:
        """What one step did."""

    def engine_lost(self, reason: str) -> None:
        """All that the engine held is gone."""


class Supervisor:
    """Owns the engine process. ``command`` gets ``--fd N --parent PID`` appended."""

    def __init__(
        self,
        config: EngineConfig,
        owner: EngineOwner,
        *,
        command: Sequence[str] = ENGINE_COMMAND,
        stall_s: float = STALL_S,
    ) -> None:
        self._config = config
        self._owner = owner
        self._command = command
        self._stall_s = stall_s
        self._link: DaemonLink | None = None
        self._failures = 0
        self._served = False  # some engine has been ready
        self._ready_at: float | None = None
        self._answered = False  # this engine has finished a request
        self._quiet_since: float | None = None  # when the wait for the next report began
        self._fatal: Fatal | None = None
        self._becoming_ready = anyio.Event()
        self._announced: Ready | None = None
        self.state: State = "loading"
        self.reason: str | None = None
        self.engine_pid = 0  # 0: there is none

    @property
    def serves(self) -> bool:
        """An engine takes commands, though it may be stalled."""
        return self._link is not None and self.state in ("ready", "stalled")

    def send(self, command: Command) -> None:
        """Queue a command. Raises EngineFailed when no engine is ready."""
        if self._link is None or not self.serves:
            raise EngineFailed(self.refusal())
        if self._quiet_since is None:
            self._quiet_since = time.monotonic()
        self._link.send(command)

    def refusal(self) -> str:
        """Why no request can be taken now."""
        if self.state == "loading":
            return "the engine is loading the model; try again when it is ready"
        return f"the engine is not available: {self.reason or 'it is being restarted'}"

    async def run(self) -> None:
        """Serve until cancelled; then the engine is ended, by force if need be.

        Raises the engine's own error when the person who started it must change something, and
        EngineFailed when the engine failed MAX_FAILURES times in a row.
        """
        while True:
            self.state, self.reason = "loading", None
            reason = await self._live()
            self.state, self.reason = "failed", reason
            self._owner.engine_lost(reason)
            self._judge(reason)
            delay = min(BACKOFF_FIRST_S * 2 ** (self._failures - 1), BACKOFF_LIMIT_S)
            logger.error("the engine failed: %s; restart in %.1f s", reason, delay)
            await anyio.sleep(delay)

    def _judge(self, reason: str) -> None:
        """Count the failure; raise when another try cannot help."""
        fatal = self._fatal
        if fatal is not None and fatal.usage and not self._served:
            raise (
                UsageError(fatal.message)
                if fatal.code == "bad_request"
                else StartFailed(fatal.message)
            )
        ready_at = self._ready_at
        healthy = self._answered or (
            ready_at is not None and time.monotonic() - ready_at > HEALTHY_S
        )
        self._failures = 1 if healthy else self._failures + 1
        if self._failures >= MAX_FAILURES:
            raise EngineFailed(f"the engine failed {self._failures} times in a row: {reason}")

    async def _live(self) -> str:
        """One engine from start to end. Returns why it ended."""
        self._fatal, self._ready_at, self._quiet_since, self._answered = None, None, None, False
        self._becoming_ready, self._announced = anyio.Event(), None
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = await anyio.open_process(
                [*self._command, "--fd", str(theirs.fileno()), "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # what a library prints is a log line
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                env=_IN_HUGE_PAGES | os.environ,
                start_new_session=True,  # Ctrl-C may come before Python could ignore it
            )
            self.engine_pid = process.pid
            theirs.close()
            link = await DaemonLink.open(ours.dup())
        try:
            async with logged(process):
                try:
                    await self._converse(link, process.pid)
                finally:
                    self._link = None
                    self.state, self.reason = "failed", f"the engine process {process.pid} ends"
                    with anyio.CancelScope(shield=True):
                        await self._end(process, link)
                    self.engine_pid = 0
        finally:
            with anyio.CancelScope(shield=True):
                await process.aclose()
        return self._fatal.message if self._fatal is not None else _how_it_ended(process)

    async def _converse(self, link: DaemonLink, pid: int) -> None:
        """Read until end of file; beside it, commands are written and the silence is timed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, link)
            tasks.start_soon(self._become_ready, link)
            tasks.start_soon(self._watch, Pulse(pid))
            await link.read(self._report)
            tasks.cancel_scope.cancel()

    async def _write(self, link: DaemonLink) -> None:
        try:
            await link.send_config(self._config)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it died at once; the reader says so
        await link.write()

    def _report(self, report: Report) -> None:
        match report:
            case Step():
                self._alive()
                self._answered = self._answered or _answers(report)
                self._owner.engine_step(report)
            case Loading(phase, fraction):
                self._owner.engine_loading(phase, fraction)
            case Ready():
                self._announced = report
                self._becoming_ready.set()
            case Fatal():
                self._fatal = report
            case _:
                assert_never(report)

    def _alive(self) -> None:
        if self.state == "stalled":
            self._moves()
        self._quiet_since = time.monotonic()

    def _moves(self) -> None:
        logger.warning("the engine moves again")
        self.state, self.reason = "ready", None

    async def _become_ready(self, link: DaemonLink) -> None:
        await self._becoming_ready.wait()
        assert self._announced is not None
        try:
            await self._owner.engine_ready(self._announced)
        except PageddError as error:
            self._fatal = Fatal(error.code, error.message, usage=True)
            await link.aclose()
            return
        self._served = True
        self._ready_at = time.monotonic()
        self._link = link
        self.state, self.reason = "ready", None
        self._owner.engine_serves()

    async def _watch(self, pulse: Pulse) -> None:
        """Say ``stalled`` when it does not move, and that it does again."""
        while True:
            await anyio.sleep(min(self._stall_s / 10, LOOK_S))
            pulse.look()
            reason = self._why_stalled(pulse)
            if reason is not None and self.state in ("ready", "stalled"):
                if self.state == "ready":
                    logger.error(reason)
                self.state, self.reason = "stalled", reason
            elif reason is None and self.state == "stalled":
                self._moves()

    def _why_stalled(self, pulse: Pulse) -> str | None:
        if pulse.stopped:
            return f"the engine process {self.engine_pid} was stopped (SIGSTOP)"
        if not self._owner.has_work():
            self._quiet_since = None
            return None
        if self._quiet_since is None:
            self._quiet_since = time.monotonic()
        silent = time.monotonic() - self._quiet_since
        if silent > self._stall_s:
            return f"the engine has work and has not reported for {self._stall_s:g} s"
        if min(silent, pulse.still_s) > STILL_S:
            return f"the engine has work and has neither reported nor computed for {STILL_S:g} s"
        return None

    async def _end(self, process: Process, link: DaemonLink) -> None:
        """Close the link, which asks it to end; wait; kill: one that loads cannot listen."""
        await link.aclose()
        with anyio.move_on_after(GRACE_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


class StartFailed(PageddError):
    """The engine says that it cannot start with what it was given."""

    code = "model_not_found"


def _answers(step: Step) -> bool:
    """A request was answered to its end."""
    return any(not finished.cancelled for finished in step.events.finished)


def _how_it_ended(process: Process) -> str:
    code = process.returncode
    if code is not None and code < 0:
        return f"the engine process {process.pid} was killed by {signal.Signals(-code).name}"
    return f"the engine process {process.pid} ended with exit code {code}"
