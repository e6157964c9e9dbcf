"""The keys that TCP clients give; they can be other ones while the daemon runs."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence

NEEDED = "Authorization: Bearer KEY is needed"
WRONG_SCHEME = "Authorization: expected Bearer KEY"
UNKNOWN = "Authorization: the key is not one of this daemon's"


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


def refusal(authorization: Sequence[str], keys: Sequence[bytes]) -> str | None:
    """Why the ``Authorization`` headers of a request hold none of ``keys``, in a sentence.

    It repeats nothing of what was given.
    """
    if not keys:
        return None
    if not any(given.strip() for given in authorization):
        return NEEDED
    scheme, _, key = (authorization[0] if len(authorization) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        return WRONG_SCHEME
    sent = _bytes(key.strip())
    # every key is compared, in constant time, so that time tells nothing
    matches = [hmac.compare_digest(sent, known) for known in keys]
    return None if any(matches) else UNKNOWN


def _bytes(text: str) -> bytes:
    """As they came: readers of HTTP take bytes for Latin-1, or escape those that are no ASCII."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
