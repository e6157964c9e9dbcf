"""What the engine process prints, in the daemon's log: tracebacks, and what its libraries say.

The daemon alone writes the log's file, so that it can be put aside and begun anew while both run.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteReceiveStream, Process

logger = logging.getLogger("pagedd.engine.output")

LINE_BYTES = 8192  # longer ones are cut into several
LAST_S = 0.5  # for the last lines of a process that has ended


@asynccontextmanager
async def logged(process: Process) -> AsyncIterator[None]:
    """What ``process`` prints goes to the log, to its last line: the end waits for that."""
    assert process.stdout is not None
    async with anyio.create_task_group() as tasks:
        output, printed = process.stdout, anyio.Event()

        async def log() -> None:
            await _log_lines(output)
            printed.set()

        tasks.start_soon(log)
        yield
        with anyio.move_on_after(LAST_S):  # a process of its own may hold the pipe
            await printed.wait()
        tasks.cancel_scope.cancel()


async def _log_lines(stream: ByteReceiveStream) -> None:
    """A warning for each line that is not empty, to the end of the stream."""
    rest = b""
    try:
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _log(line)
            while len(rest) > LINE_BYTES:
                _log(rest[:LINE_BYTES])
                rest = rest[LINE_BYTES:]
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        _log(rest)


def _log(line: bytes) -> None:
    for at in range(0, len(line), LINE_BYTES):
        text = line[at : at + LINE_BYTES].decode("utf-8", "replace").rstrip()
        if text:
            logger.warning("%s", text)
