"""One row of the table of options."""

from __future__ import annotations

from typing import Any, NamedTuple

from pagedd.config.kinds import Kind


class Option(NamedTuple):
    """One setting. ``default`` None: chosen when it is needed, as ``help`` says.

    No dataclass: their module alone takes a command 8 ms to import.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    group: str
    target: str  # which struct takes it: "engine", "daemon" or "client"

    @property
    def flag(self) -> str:
        """``--name``"""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """``PAGEDD_NAME``"""
        return "PAGEDD_" + self.name.upper().replace("-", "_")

    @property
    def field(self) -> str:
        """The name of the field of a struct."""
        return self.name.replace("-", "_")


def group_of(group: str, *rows: tuple[str, Kind, Any, str, str]) -> tuple[Option, ...]:
    """Rows of name, kind, default, help and target."""
    return tuple(Option(*row[:4], group, row[4]) for row in rows)
