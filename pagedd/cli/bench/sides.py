"""What can be measured under a load: a daemon, or an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pagedd.cli.bench.steps import drive, drive_server
from pagedd.errors import UsageError

if TYPE_CHECKING:
    from pagedd.bench.load import Item, Workload
    from pagedd.bench.openai_server import Server
    from pagedd.cli.connection import Connection
    from pagedd.cli.progress import Progress

ENDLESS = 1 << 20  # tokens of a sequence where nobody states a limit


class Side(Protocol):
    """``vocab_size`` and ``max_model_len`` are None where the side does not tell."""

    name: str
    vocab_size: int | None
    max_model_len: int | None

    def measure(
        self, items: Sequence[Item], load: Workload, warm_up: Sequence[Item], progress: Progress
    ) -> dict[str, Any]:
        """The result of one run."""


class DaemonSide:
    """A daemon of pagedd over its own protocol."""

    name = "pagedd"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.vocab_size: int | None = connection.hello.limits.vocab_size
        self.max_model_len: int | None = connection.hello.max_model_len

    def measure(
        self, items: Sequence[Item], load: Workload, warm_up: Sequence[Item], progress: Progress
    ) -> dict[str, Any]:
        from pagedd.bench.report import summarise_daemon

        run = drive(self._connection, items, load, progress, warm_up=warm_up)
        return summarise_daemon(run, items, load)


class ServerSide:
    """A server of another kind over ``/v1/completions``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.name = server.owner or f"{server.host}:{server.port}"
        self.vocab_size = server.vocab_size
        self.max_model_len = server.max_model_len

    def measure(
        self, items: Sequence[Item], load: Workload, warm_up: Sequence[Item], progress: Progress
    ) -> dict[str, Any]:
        from pagedd.bench.report import summarise

        run = drive_server(self._server, items, load, progress, warm_up=warm_up)
        facts = {
            "url": self._server.url,
            "model": self._server.model,
            "owner": self._server.owner,
        }
        return summarise(run, items, load) | {"server": facts}


def items_for(
    sides: Sequence[Side], load: Workload, vocab_size: int | None
) -> tuple[list[Item], list[Item]]:
    """The requests, which all ``sides`` can take, and those to warm up with.

    Errors: ``UsageError`` when they do not fit, or when nobody says how many ids there are.
    """
    from pagedd.bench.load import make_items

    sizes = [side.vocab_size for side in sides if side.vocab_size is not None]
    lengths = [side.max_model_len for side in sides if side.max_model_len is not None]
    size = vocab_size or min(sizes, default=0)
    if not size and not load.text:
        raise UsageError(
            f"{sides[0].name} does not say how many tokens its vocabulary has: give --vocab-size, "
            "or --prompts text"
        )
    longest = min(lengths, default=ENDLESS)
    # another prompt than those that are measured: none of them is in the prefix cache
    other = replace(load, seed=load.seed + 1, num_requests=1, concurrency=1, request_rate=None)
    return make_items(load, size, longest), make_items(other, size, longest)
