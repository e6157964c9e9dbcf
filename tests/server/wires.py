"""Wires in the place of a connection: what an outbox writes, as objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio


class ListWire:
    """Takes everything; ``writes`` are the frames of each write, in order."""

    room = 1 << 20

    def __init__(self) -> None:
        self.writes: list[list[dict[str, Any]]] = []

    @property
    def frames(self) -> list[dict[str, Any]]:
        """All that was written."""
        return [frame for write in self.writes for frame in write]

    def write(self, frames: Sequence[bytes]) -> None:
        self.writes.append([json.loads(frame) for frame in frames])

    async def send(self, frame: bytes) -> None:
        raise AssertionError("there is room: nothing has to wait")


class FullWire(ListWire):
    """Has no room; each frame waits until ``open`` is set."""

    room = 0

    def __init__(self) -> None:
        super().__init__()
        self.open = anyio.Event()

    async def send(self, frame: bytes) -> None:
        self.write([frame])
        await self.open.wait()


class SlowWire(FullWire):
    """Has no room; takes a frame each time that it is told to."""

    async def send(self, frame: bytes) -> None:
        await super().send(frame)
        self.open = anyio.Event()

    async def take(self) -> bool:
        """Take the next frame; False if there is none."""
        before = len(self.writes)
        self.open.set()
        await anyio.wait_all_tasks_blocked()
        return len(self.writes) > before
