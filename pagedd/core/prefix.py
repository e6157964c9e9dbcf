"""PrefixIndex: hash of full pages → page."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from hashlib import blake2b

from pagedd.core.request import Request

_DIGEST_SIZE = 16


class PrefixIndex:
    """Finds the page that holds given tokens after a given past.

    The key of a full page is a keyed 128-bit BLAKE2b digest (RFC 7693) over the key of the page
    before it and its own token ids, the first page's over a root made of the salt. So equal keys
    mean equal tokens from the start of the sequence on, under one salt, and who does not know
    ``key`` (up to 64 bytes) cannot look for collisions.

    Of several pages with the same content only the first is found; the others are plain pages.
    """

    def __init__(self, page_size: int, key: bytes) -> None:
        self._page_size = page_size
        self._key = key
        self._pages: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def root(self, salt: bytes) -> bytes:
        """What stands for the page before the first one."""
        return blake2b(salt, digest_size=_DIGEST_SIZE, key=self._key, person=b"salt").digest()

    def digest(self, parent: bytes, tokens: Seq[int]) -> bytes:
        """The key of a full page of ``tokens`` that follows the page with the key ``parent``."""
        data = parent + array("q", tokens).tobytes()
        return blake2b(data, digest_size=_DIGEST_SIZE, key=self._key).digest()

    def extend(self, keys: list[bytes], tokens: list[int], count: int, salt: bytes) -> None:
        """Bring ``keys``, the keys of the first pages of ``tokens``, to ``count`` entries."""
        size = self._page_size
        for logical in range(len(keys), count):
            parent = keys[-1] if keys else self.root(salt)
            keys.append(self.digest(parent, tokens[logical * size : (logical + 1) * size]))

    def find(self, key: bytes) -> int | None:
        """The page that holds what ``key`` stands for."""
        return self._pages.get(key)

    def add(self, key: bytes, page: int) -> bool:
        """Let ``key`` find ``page``; False when it finds another one already."""
        return self._pages.setdefault(key, page) == page

    def remove(self, key: bytes) -> None:
        """Let ``key`` find nothing."""
        del self._pages[key]

    def entries(self) -> dict[bytes, int]:
        """A copy of the index."""
        return dict(self._pages)


def salt_of(request: Request, longest_free_prompt: int | None) -> bytes:
    """What the keys of a request's pages depend on besides its tokens.

    That is also the length of its prompt, when keys and values of the model depend on it.
    """
    length = len(request.prompt)
    free = longest_free_prompt is None or length <= longest_free_prompt
    return (0 if free else length).to_bytes(8, "little") + request.salt
