"""What every measurement does: warm up and drive a daemon, and write the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pagedd.errors import PageddError, UsageError

if TYPE_CHECKING:
    from pagedd.bench.drive import Run
    from pagedd.bench.load import Item, Workload
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
) -> Run:
    """Send ``warm_up`` one by one, whose prompts should be other ones than those of ``items``, and
    then ``items`` as ``load`` says. ``status_every``: seconds between two looks at the status."""
    import time

    from pagedd.bench.drive import Driver
    from pagedd.cli.status import ask_status

    one_by_one = replace(load, num_requests=len(warm_up), concurrency=1, request_rate=None)
    Driver(connection, warm_up, one_by_one, lambda fraction, what: None).run(
        ask_status(connection), lambda: ask_status(connection)
    )
    driver = Driver(connection, items, load, progress, time.monotonic, status_every)
    return driver.run(ask_status(connection), lambda: ask_status(connection))


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
