"""Where the dashboard's frames come from: a daemon, a recording, or a simulation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from pagedd.protocol import Event, Explanation, Hello, State, Status


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no connection: why, as a sentence, and in how many seconds it is tried again."""

    reason: str
    retry_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes: the end of a recording. ``note``: what else there is to say about it."""

    note: str = ""


LIVE = "live"  # the title of a source that tells of a daemon at this moment
Item = Hello | State | Event | Status | Lost | Ended


class Source(Protocol):
    """Gives items without end, and answers questions about requests."""

    @property
    def title(self) -> str:
        """What the header says of it: ``live``, ``replay FILE``, ``demo``."""

    @property
    def can_command(self) -> bool:
        """Whether ``cancel`` and ``reprioritize`` mean anything here."""

    def items(self) -> AsyncIterator[Item]:
        """First a ``Hello``, then what comes.

        After ``Lost`` comes another ``Lost``, or a ``Hello`` (perhaps with another ``boot_id``) and
        then a keyframe. Never raises for what a daemon or a file can do.
        """

    async def explain(self, handle: int) -> Explanation:
        """Why a request is where it is. Raises PageddError with a sentence to show."""

    async def cancel(self, handle: int) -> None:
        """End a request. Raises PageddError."""

    async def reprioritize(self, handle: int, priority: int) -> None:
        """Another priority. Raises PageddError."""
