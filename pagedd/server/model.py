"""What the hub knows of its engine."""

from __future__ import annotations

from typing import Protocol

from pagedd.engine.messages import Command, Ready
from pagedd.server.edge import EdgeLimits
from pagedd.text.tokenizer import TextModel


class EngineGate(Protocol):
    """What the hub needs of the supervisor."""

    @property
    def serves(self) -> bool:
        """An engine takes commands."""

    def refusal(self) -> str:
        """Why none does."""

    def send(self, command: Command) -> None:
        """Raises EngineFailed when no engine is ready."""


class Model:
    """What is known once an engine is ready."""

    def __init__(self, ready: Ready, text: TextModel) -> None:
        self.ready = ready
        self.text = text
        self.limits = EdgeLimits.of(ready)
