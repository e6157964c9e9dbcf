"""A client process for the kill tests: ``python -m tests.server.hungry_client SOCKET``.

Opens requests without end, says so by a line, and reads until somebody ends it.
"""

from __future__ import annotations

import itertools
import json
import sys

from websockets.sync.client import unix_connect

OPEN = 6


def main(path: str) -> None:
    with unix_connect(path, uri="ws://localhost/", compression=None) as socket:
        ids = itertools.count()

        def ask() -> None:
            params = {"max_tokens": 100, "n": 2}
            frame = {
                "type": "generate",
                "id": f"h{next(ids)}",
                "prompt": "hungry",
                "params": params,
            }
            socket.send(json.dumps(frame))

        for _ in range(OPEN):
            ask()
        told = False
        for data in socket:
            frame = json.loads(data)
            if frame["type"] == "delta" and not told:
                print("eating", flush=True)
                told = True
            if frame["type"] in ("done", "error"):
                ask()


if __name__ == "__main__":
    main(sys.argv[1])
