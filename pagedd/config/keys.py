"""How keys are written: by themselves, or in a file. Standard library only."""

from __future__ import annotations

import os

from pagedd.config.kinds import Kind, Unusable


def secrets() -> Kind:
    """Keys: given several times, separated by commas, or as a toml list. Never shown.

    ``@FILE`` stands for the keys of a file, one a line; empty lines and those that begin with # do
    not count.
    """

    def read(value: str) -> tuple[str, ...]:
        found: list[str] = []
        for item in filter(None, (item.strip() for item in value.split(","))):
            found += _keys_of(item[1:]) if item.startswith("@") else [item]
        if not found or not all(map(_is_key, found)):
            raise ValueError
        return tuple(dict.fromkeys(found))

    return Kind(
        "KEY|@FILE",
        "keys of printable ASCII without spaces, separated by commas, or @FILE that holds them",
        read,
        (str, list),
        show=lambda value: "(set, not shown)" if value else "none",
    )


def _keys_of(name: str) -> list[str]:
    try:
        with open(os.path.expanduser(name), encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except OSError as error:
        raise Unusable(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unusable(f"{name} cannot be read: it is no text") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise Unusable(f"{name} holds no key")
    return keys


def _is_key(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
