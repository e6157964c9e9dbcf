"""The name under which clients find the model."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from pagedd.engine.messages import Ready
from pagedd.server.hub import Hub


class NamedHub(Hub):
    """A hub that calls the model ``served_name`` everywhere, also while it loads; None: its own."""

    def __init__(self, served_name: str | None, *, model_name: str, **parts: Any) -> None:
        super().__init__(model_name=served_name or model_name, **parts)
        self._served_name = served_name

    async def engine_ready(self, ready: Ready) -> None:
        """Each engine brings the name of its folder or file."""
        await super().engine_ready(replace(ready, model=self._served_name or ready.model))
