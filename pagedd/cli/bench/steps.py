"""What every measurement does: warm up and drive what is measured, and write the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pagedd.errors import PageddError, UsageError

if TYPE_CHECKING:
    from pagedd.bench.drive import DaemonRun, Run
    from pagedd.bench.load import Item, Workload
    from pagedd.bench.openai_server import Server
    from pagedd.cli.connection import Connection
    from pagedd.cli.progress import Progress

STATUS_EVERY_S = 0.5


def drive(
    connection: Connection,
    items: Sequence[Item],
    load: Workload,
    progress: Progress,
    *,
    warm_up: Sequence[Item],
    status_every: float = STATUS_EVERY_S,
) -> DaemonRun:
    """Send ``warm_up`` one by one, whose prompts should be other ones than those of ``items``, and
    then ``items`` as ``load`` says. ``status_every``: seconds between two looks at the status."""
    import time

    from pagedd.bench.drive import Driver
    from pagedd.cli.status import ask_status

    Driver(connection, warm_up, _one_by_one(load, warm_up), _hidden, status_every=None).run()
    driver = Driver(connection, items, load, progress, time.monotonic, status_every)
    return driver.watched(ask_status(connection), lambda: ask_status(connection))


def drive_server(
    server: Server,
    items: Sequence[Item],
    load: Workload,
    progress: Progress,
    *,
    warm_up: Sequence[Item],
) -> Run:
    """The same with an OpenAI-compatible server. Errors: also ``PageddError`` when it cannot answer
    what it is warmed up with."""
    from pagedd.bench.completions import CompletionsWire
    from pagedd.bench.drive import Driver

    with CompletionsWire(server) as wire:
        one_by_one = _one_by_one(load, warm_up)
        for trace in Driver(wire, warm_up, one_by_one, _hidden, status_every=None).run().traces:
            if trace.error is not None or trace.first is None:
                raise PageddError(trace.error or f"{server.url} answers without any text")
        wire.open(min(load.concurrency or 1, len(items)))
        return Driver(wire, items, load, progress, status_every=None).run()


def write_result(result: dict[str, Any], table: Sequence[str], where: str | None) -> None:
    """The table, or JSON for ``-``; a file gets the JSON besides. Errors: ``PageddError``."""
    import json

    if where == "-":
        print(json.dumps(result, indent=2))
        return
    print("\n".join(table))
    if where is not None:
        try:
            with open(where, "w", encoding="utf-8") as file:
                file.write(json.dumps(result, indent=2) + "\n")
        except OSError as error:
            raise PageddError(f"--json {where}: cannot be written: {error.strerror}") from error


def check_counts(counts: dict[str, int | None]) -> None:
    """Option → value. Errors: ``UsageError``."""
    for name, value in counts.items():
        if value is not None and not 1 <= value <= 1_000_000:
            raise UsageError(f"--{name}: must be a whole number from 1 to 1000000, not {value}")


def _one_by_one(load: Workload, warm_up: Sequence[Item]) -> Workload:
    return replace(load, num_requests=len(warm_up), concurrency=1, request_rate=None)


def _hidden(fraction: float, what: str) -> None:
    """Progress that nobody sees."""
