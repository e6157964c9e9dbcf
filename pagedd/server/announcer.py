"""Tells whoever started the daemon how it gets on: the log, ``--detach``, the service manager."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import anyio

from pagedd.engine.messages import Ready
from pagedd.server import logs
from pagedd.server.notify import Notifier
from pagedd.server.ready_pipe import ReadyPipe
from pagedd.server.settings import DaemonSettings

logger = logging.getLogger(__name__)

NO_SWAP_SPACE = "--preemption-mode swap without swap space: what gives way has to be computed again"
LOADING_EXTENDS_US = 60_000_000  # a load that reports progress may take so long to the next report


class Announcer:
    """``endpoints`` has to be set before anything is ready."""

    def __init__(self, settings: DaemonSettings, ready_pipe: ReadyPipe) -> None:
        self._settings = settings
        self._ready_pipe = ready_pipe
        self._notifier = Notifier.from_environment()
        self._been_ready = False
        self.endpoints: Sequence[str] = ()

    def loading(self, phase: str, fraction: float) -> None:
        """Progress of a load."""
        logger.debug("loading: %s %.0f%%", phase, 100 * fraction)
        self._notifier.send(
            STATUS=f"loading: {phase} {fraction:.0%}", EXTEND_TIMEOUT_USEC=LOADING_EXTENDS_US
        )

    def ready(self, ready: Ready) -> None:
        """An engine serves: the first one, or one after it."""
        for note in ready.notes:
            logger.info(note)
        if self._settings.engine.preemption_mode == "swap" and not ready.num_host_pages:
            logger.warning(NO_SWAP_SPACE)
        line = f"ready: {ready.model} on {' and '.join(self.endpoints)}"
        self._notifier.send(READY=1, STATUS=line)
        if self._been_ready:
            logger.info("the engine is %s", line)
            return
        self._been_ready = True
        if self._settings.log_file is not None:
            logger.info(line)
        if self._settings.ready_fd is None:
            logs.say(f"pagedd {line}")
        self._ready_pipe.write("ready")

    def reload(self, reload: Callable[[], None]) -> None:
        """Do it; the manager, if it knows the daemon as ready, is told before and afterwards."""
        if self._been_ready:
            self._notifier.reloading()
        reload()
        if self._been_ready:
            self._notifier.send(READY=1)

    def stopping(self) -> None:
        """The end begins."""
        self._notifier.send(STOPPING=1)

    async def feed_watchdog(self, moves: Callable[[], bool]) -> None:
        """While the event loop runs, and ``moves``. Returns at once if nobody watches."""
        if self._notifier.watchdog_s is None:
            return
        while True:
            if moves():
                self._notifier.send(WATCHDOG=1)
            await anyio.sleep(self._notifier.watchdog_s / 4)
