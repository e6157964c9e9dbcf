"""How the value of an option is written, checked and shown.

A :class:`Kind` reads the text of a flag or a variable and the typed value of a toml key, so that
all origins have the same rules and the same sentences. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})


class Address(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host in _LOOPBACK_NAMES:
            return True
        import ipaddress

        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Unusable(ValueError):
    """A value that is well written and of no use; its text says why, and repeats no secret."""


class Kind(NamedTuple):
    """One way of writing a value.

    ``expects`` ends the sentence "must be …". ``read`` raises ``ValueError`` for a wrong text.
    ``toml`` are the types a toml value may have.
    """

    metavar: str
    expects: str
    read: Callable[[str], Any]
    toml: tuple[type, ...] = (str,)
    choices: tuple[str, ...] = ()
    show: Callable[[Any], str] = str

    def read_toml(self, value: object) -> Any:
        """The value of a toml key. Errors: ``ValueError``."""
        if isinstance(value, bool) and bool not in self.toml:
            raise ValueError
        if not isinstance(value, self.toml):
            raise ValueError
        if isinstance(value, list):
            if not all(isinstance(item, str) for item in value):
                raise ValueError
            return self.read(",".join(value))
        return self.read(str(value).lower() if isinstance(value, bool) else str(value))


def text(metavar: str, expects: str = "a text that is not empty") -> Kind:
    """Any text that is not empty."""
    return Kind(metavar, expects, _not_empty)


def path() -> Kind:
    """A path; a leading ``~`` is the home folder."""
    return Kind(
        "PATH",
        "a path",
        lambda value: os.path.expanduser(_not_empty(value)),
        show=lambda value: "none" if value is None else str(value),
    )


def choice(*names: str) -> Kind:
    """One of a few words."""

    def read(value: str) -> str:
        if value not in names:
            raise ValueError
        return value

    return Kind("|".join(names), f"one of {', '.join(names)}", read, choices=names)


def whole(low: int, high: int, *, auto: bool = False, metavar: str = "N") -> Kind:
    """A whole number; with ``auto`` also the word auto, which is None."""

    def read(value: str) -> int | None:
        if auto and value == "auto":
            return None
        if not value.isascii():
            raise ValueError
        number = int(value)
        if not low <= number <= high:
            raise ValueError
        return number

    expects = f"a whole number from {low} to {high}" + (" or auto" if auto else "")
    return Kind(metavar, expects, read, (int, str) if auto else (int,), show=show_auto)


def size(low: int, *, auto: bool = False, bare: str = "b") -> Kind:
    """Bytes with an optional unit: 64MiB, 2GiB, 1.5G (K, M, G, T = powers of 1024; kB = 1000).

    ``bare`` is the unit of a number that has none.
    """

    def read(value: str) -> int | None:
        if auto and value == "auto":
            return None
        digits = value.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
        unit = value[len(digits) :].strip().lower() or bare
        if unit not in _UNITS or not digits.isascii():
            raise ValueError
        factor = _UNITS[unit]
        # a float would round the bytes of a large whole number
        number = int(digits) * factor if digits.isdecimal() else int(float(digits) * factor)
        if not low <= number < 2**63:
            raise ValueError
        return number

    expects = f"a size like 512MiB or 2GiB, at least {show_size(low)}" + (
        " or auto" if auto else ""
    )
    toml = (int, str) if bare == "b" else (int, float, str)
    return Kind("SIZE", expects, read, toml, show=show_size)


def number(
    low: float, high: float, *, above: bool = False, off: bool = False, metavar: str = "X"
) -> Kind:
    """A decimal number from ``low`` (or above it) to ``high``; with ``off`` also the word off,
    which is None."""

    def read(value: str) -> float | None:
        if off and value == "off":
            return None
        if not value.isascii():
            raise ValueError
        found = float(value)
        if not (low < found if above else low <= found) or not found <= high:
            raise ValueError
        return found

    bound = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
    return Kind(
        f"{metavar}|off" if off else metavar,
        f"a number {bound}" + (" or off" if off else ""),
        read,
        (int, float, str) if off else (int, float),
        show=lambda value: "off" if value is None else f"{value:g}",
    )


def switch() -> Kind:
    """On or off: ``--name`` and ``--no-name``, true and false."""

    def read(value: str) -> bool:
        word = value.lower()
        if word not in _TRUE | _FALSE:
            raise ValueError
        return word in _TRUE

    return Kind("true|false", "true or false", read, (bool,), show=lambda on: str(on).lower())


def address() -> Kind:
    """``HOST:PORT``, ``[IPV6]:PORT``, or off (None)."""

    def read(value: str) -> Address | None:
        if value == "off":
            return None
        host, colon, port = value.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError
        if not colon or not host or not port.isascii() or not 0 <= int(port) <= 65535:
            raise ValueError
        return Address(host, int(port))

    return Kind(
        "HOST:PORT|off",
        "HOST:PORT with a port from 0 to 65535, or off",
        read,
        show=lambda value: "off" if value is None else str(value),
    )


def origins() -> Kind:
    """Web origins: given several times, separated by commas, or as a toml list."""

    def read(value: str) -> tuple[str, ...]:
        found = tuple(item.strip() for item in value.split(",") if item.strip())
        if not all("://" in item or item in ("*", "null") for item in found):
            raise ValueError
        return found

    return Kind(
        "ORIGIN",
        "origins like https://example.org, separated by commas",
        read,
        (str, list),
        show=lambda value: ",".join(value) or "none",
    )


def hosts() -> Kind:
    """Host names: given several times, separated by commas, or as a toml list."""

    def read(value: str) -> tuple[str, ...]:
        found = tuple(item.strip().lower() for item in value.split(",") if item.strip())
        if any(set(item) & set(":/@ ") for item in found):
            raise ValueError
        return found

    return Kind(
        "NAME",
        "host names without a port, separated by commas",
        read,
        (str, list),
        show=lambda value: ",".join(value) or "none",
    )


def show_auto(value: object) -> str:
    """None is what the engine chooses."""
    return "auto" if value is None else str(value)


def show_size(value: int | None) -> str:
    """Bytes in the largest binary unit that divides them."""
    if value is None:
        return "auto"
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value and value % (1 << power) == 0:
            return f"{value >> power}{unit}"
    return f"{value}B" if value else "0"


def _not_empty(value: str) -> str:
    if not value.strip() or "\0" in value:
        raise ValueError
    return value
