"""The daemon process: sockets, sessions and the engine's supervisor, from start to end.

Signals: SIGTERM or one SIGINT drains, a second of them ends the requests at once and makes the exit
code 130; SIGHUP reads settings again; SIGUSR1 writes the status and all stacks to the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import msgspec

from pagedd.engine.supervisor import ENGINE_COMMAND, STALL_S, Supervisor
from pagedd.errors import PageddError, ShuttingDown
from pagedd.protocol import Status
from pagedd.server import logs
from pagedd.server.announcer import Announcer
from pagedd.server.http.gateway import Gateway
from pagedd.server.http.serving import HttpEdge
from pagedd.server.hub import Hub
from pagedd.server.keys import ApiKeys
from pagedd.server.listener import Listener
from pagedd.server.metrics import Metrics, Now
from pagedd.server.naming import NamedHub
from pagedd.server.ready_pipe import ReadyPipe
from pagedd.server.reload import Reloader
from pagedd.server.settings import DaemonSettings
from pagedd.server.sockets import InstanceLock, Owner, bind_tcp, bind_unix, endpoint
from pagedd.server.status import Facts, StatusBoard
from pagedd.server.tls import server_context

logger = logging.getLogger(__name__)

INTERRUPTED = 130
FLUSH_S = 0.3  # at the end, for the last frames of clients that read
ReadAgain = Callable[[], DaemonSettings]


def run_daemon(
    settings: DaemonSettings,
    *,
    command: Sequence[str] = ENGINE_COMMAND,
    stall_s: float = STALL_S,
    read_again: ReadAgain | None = None,
    served_name: str | None = None,
) -> int:
    """Serve until a signal. Returns the exit code: 0 after a drain, 130 when it was cut short.

    ``read_again`` gives the settings at SIGHUP; ``served_name`` is what clients see as the model's
    name, and None its own. Raises PageddError, with its exit code, when the
    daemon cannot start or its engine cannot be kept alive; ``ready_fd`` and the log file have been
    told then.
    """
    ready_pipe = ReadyPipe(settings.ready_fd)
    try:
        limits = settings.log_max_size, settings.log_keep
        log = logs.configure(settings.log_level, settings.log_file, *limits)
        make = partial(Daemon, settings, command, stall_s, ready_pipe, log, read_again, served_name)
        return anyio.run(_run, make)
    except PageddError as error:
        if settings.log_file is not None:
            logger.error(error.message)
        ready_pipe.write(error.message)
        raise


async def _run(make: Callable[[], Daemon]) -> int:
    return await make().run()


class Daemon:
    """Composition root: builds the parts, ties them together, ends them in order."""

    def __init__(
        self,
        settings: DaemonSettings,
        command: Sequence[str],
        stall_s: float,
        ready_pipe: ReadyPipe,
        log: logs.Log,
        read_again: ReadAgain | None,
        served_name: str | None,
    ) -> None:
        self._settings = settings
        self._announcer = Announcer(settings, ready_pipe)
        self._log = log
        self._keys = ApiKeys(settings.api_keys)
        self._tls = None if settings.tls is None else server_context(settings.tls)
        self._boot_id = secrets.token_hex(8)
        self._version = version("pagedd")
        model = served_name or settings.engine.model
        fixed = settings.engine.num_pages is not None
        self._board = StatusBoard(self._version, self._boot_id, model, fixed_pages=fixed)
        self._hub = self._new_hub(served_name)
        self._supervisor = Supervisor(settings.engine, self._hub, command=command, stall_s=stall_s)
        self._hub.connect_engine(self._supervisor)
        self._listener = Listener(
            self._hub,
            keys=self._keys,
            tls=self._tls,
            allow_origin=settings.allow_origin,
            outbox_bytes=settings.outbox_bytes,
            get_status=self.status,
        )
        self._reloader = Reloader(
            settings,
            read_again,
            log=log,
            keys=self._keys,
            context=self._tls,
            deadlines=self._hub.deadlines,
        )
        self._http: HttpEdge | None = None
        self._endpoints: tuple[str, ...] = ()
        self._stop = anyio.Event()
        self._patience = anyio.CancelScope()  # of the drain
        self._engine_scope = anyio.CancelScope()
        self._engine_ended = anyio.Event()
        self._failure: PageddError | None = None
        self._exit_code = 0

    def _new_hub(self, served_name: str | None) -> Hub:
        settings = self._settings
        return NamedHub(
            served_name,
            boot_id=self._boot_id,
            model_name=settings.engine.model,
            max_queue=settings.max_queue,
            board=self._board,
            metrics=Metrics(settings.metrics_namespace, self._look),
            request_timeout=settings.request_timeout,
            on_loading=self._announcer.loading,
            on_ready=self._announcer.ready,
        )

    async def run(self) -> int:
        """Lock and sockets first: nothing is loaded if they cannot be had."""
        settings = self._settings
        path = Path(settings.socket).absolute()
        owner = Owner(os.getpid(), self._boot_id, self._version)
        with ExitStack() as stack:
            stack.enter_context(InstanceLock(path, owner))
            sockets = [stack.enter_context(bind_unix(path))]
            if settings.listen is not None:
                tcp = bind_tcp(settings.listen, with_key=bool(settings.api_keys))
                sockets.append(stack.enter_context(tcp))
            secure = "" if self._tls is None else "s"
            self._endpoints = tuple(endpoint(sock, f"ws{secure}") for sock in sockets)
            http = None
            if settings.http is not None:
                keyed = bool(settings.api_keys)
                http = stack.enter_context(bind_tcp(settings.http, with_key=keyed, flag="--http"))
                self._endpoints += (endpoint(http, f"http{secure}"),)
            self._announcer.endpoints = self._endpoints
            await self._serve(sockets, http)
        if self._failure is not None:
            raise self._failure
        return self._exit_code

    def status(self, ref: str | None) -> Status:
        """The status of this moment; ``ref`` is echoed."""
        facts = Facts(
            state="draining" if self._hub.draining else self._supervisor.state,
            reason=self._supervisor.reason,
            engine_pid=self._supervisor.engine_pid,
            held=len(self._hub.held),
            connections=self._listener.connections + self._http_connections,
            endpoints=self._endpoints,
        )
        status = self._board.status(facts)
        return status if ref is None else msgspec.structs.replace(status, ref=ref)

    def _look(self) -> Now:
        hub, kinds = self._hub, {"websocket": self._listener.connections}
        return Now(
            status=self.status(None),
            ready=None if hub.model is None else hub.model.ready,
            preparing=len(hub.directory.preparing),
            held=len(hub.held),
            connections=kinds | {"http": self._http_connections},
        )

    @property
    def _http_connections(self) -> int:
        return 0 if self._http is None else self._http.connections

    async def _serve(self, sockets: Sequence[socket.socket], http: socket.socket | None) -> None:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watch_signals)
            await self._listener.start(sockets)
            if http is not None:
                self._http = self._http_edge()
                await tasks.start(self._http.run, http)
            tasks.start_soon(self._supervise)
            tasks.start_soon(self._hub.state_feed.run)
            tasks.start_soon(
                self._announcer.feed_watchdog, lambda: self._supervisor.state != "stalled"
            )
            await self._stop.wait()
            await self._drain()
            tasks.cancel_scope.cancel()

    async def _supervise(self) -> None:
        """Run the engine; a failure that stays ends the daemon."""
        with self._engine_scope:
            try:
                await self._supervisor.run()
            except PageddError as error:
                self._failure, self._hub.draining = error, True
                self._hub.fail_all(error)  # those that waited for another engine
                self._stop.set()
            finally:
                self._engine_ended.set()

    async def _drain(self) -> None:
        """Let running requests finish, end the others, close the connections and the engine."""
        self._hub.draining = True
        self._announcer.stopping()
        self._patience.deadline = anyio.current_time() + self._reloader.settings.drain_timeout
        with self._patience:
            await self._hub.drained()
        self._hub.fail_all(ShuttingDown("the daemon shut down before the request was finished"))
        asyncio.get_running_loop().set_exception_handler(_too_late)
        self._engine_scope.cancel()
        with anyio.move_on_after(FLUSH_S):
            await self._listener.flush()
        async with anyio.create_task_group() as closing:
            closing.start_soon(self._listener.close)
            if self._http is not None:
                closing.start_soon(self._http.close)
        await self._engine_ended.wait()  # signals are watched for as long as anything is left

    def _http_edge(self) -> HttpEdge:
        settings = self._settings
        gateway = Gateway(
            hub=self._hub,
            get_status=lambda: self.status(None),
            outbox_bytes=settings.outbox_bytes,
            body_limit=settings.http_body_limit,
            model_name=settings.engine.model,
            began=int(time.time()),
        )
        return HttpEdge(
            gateway,
            keys=lambda: self._keys.current,
            tls=self._tls,
            origins=settings.allow_origin,
            hosts=settings.allow_host,
            max_connections=settings.max_connections,
        )

    async def _watch_signals(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
        try:
            with anyio.open_signal_receiver(*watched) as signals:
                task_status.started()
                async for received in signals:
                    if received == signal.SIGHUP:
                        self._announcer.reload(self._reloader.reload)
                    elif received == signal.SIGUSR1:
                        logger.info("status: %s", msgspec.json.encode(self.status(None)).decode())
                        self._log.dump_stacks()
                    elif self._stop.is_set():
                        self._exit_code = INTERRUPTED
                        self._patience.cancel()
                    else:
                        logger.info("%s: shutting down", received.name)
                        self._stop.set()
        finally:
            # What is left is to remove files and exit: no signal can make that shorter.
            for ending in (signal.SIGINT, signal.SIGTERM):
                signal.signal(ending, signal.SIG_IGN)


def _too_late(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """anyio hears of a socket for a moment after its wait was cancelled: that is no fault."""
    if isinstance(context.get("exception"), asyncio.InvalidStateError):
        logger.debug("%s", context["message"])
    else:
        loop.default_exception_handler(context)
