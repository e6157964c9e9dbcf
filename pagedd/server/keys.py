"""The keys that TCP clients give; they can be other ones while the daemon runs."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence


class ApiKeys:
    """None at all: no key is asked for."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = [key.encode() for key in keys]

    @property
    def current(self) -> Sequence[bytes]:
        """Those that count now."""
        return self._keys

    def replace(self, keys: Iterable[str]) -> None:
        """Others count from now on; who is connected stays."""
        self._keys = [key.encode() for key in keys]

    def admit(self, authorization: Sequence[str]) -> bool:
        """Do the ``Authorization`` headers of a request hold one of the keys?"""
        if not self._keys:
            return True
        scheme, _, key = (authorization[0] if len(authorization) == 1 else "").partition(" ")
        given = key.strip().encode()
        # every key is compared, in constant time, so that time tells nothing
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        return scheme.lower() == "bearer" and any(matches)
