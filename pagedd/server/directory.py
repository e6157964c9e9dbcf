"""Which requests are open, on all connections, and how people name them."""

from __future__ import annotations

import re

from pagedd.server.requests import OpenRequest, Preparing

_HANDLE = re.compile(r"#(0|[1-9][0-9]{0,17})")


def handle_in(id: str) -> int | None:
    """``#17`` names the request with handle 17, on whatever connection it is."""
    found = _HANDLE.fullmatch(id)
    return None if found is None else int(found[1])


class Directory:
    """``requests``: what the engine works on; ``preparing``: what is on its way there."""

    def __init__(self) -> None:
        self.requests: dict[int, OpenRequest] = {}
        self.preparing: dict[int, Preparing] = {}

    @property
    def empty(self) -> bool:
        """Nothing is open."""
        return not self.requests and not self.preparing

    def by_handle(self, handle: int) -> OpenRequest | Preparing | None:
        """None when it is not open, or when its client has cancelled it already."""
        preparing = self.preparing.get(handle)
        if preparing is not None:
            return None if preparing.withdrawn else preparing
        return self.requests.get(handle)

    def by_id(self, id: str) -> list[OpenRequest | Preparing]:
        """Of all connections: ids are unique on their own one only."""
        preparing = [
            each for each in self.preparing.values() if each.id == id and not each.withdrawn
        ]
        return [*preparing, *(each for each in self.requests.values() if each.id == id)]
