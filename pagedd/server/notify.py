"""The service manager's readiness protocol: sd_notify(3), one datagram a message."""

from __future__ import annotations

import os
import socket


class Notifier:
    """Silent when ``NOTIFY_SOCKET`` is not set or does not answer: nobody asked."""

    def __init__(self, address: str | None) -> None:
        # an @ stands for the zero byte of the abstract namespace
        self._address = "\0" + address[1:] if address and address[0] == "@" else address

    @classmethod
    def from_environment(cls) -> Notifier:
        """For the manager that started this process, if there is one."""
        return cls(os.environ.get("NOTIFY_SOCKET"))

    def send(self, **fields: str | int) -> None:
        """For example ``send(READY=1, STATUS="serving")``."""
        if not self._address:
            return
        text = "\n".join(f"{name}={value}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.connect(self._address)
                sock.sendall(text.encode())
        except OSError:
            self._address = None
