"""The service manager's protocol: sd_notify(3), one datagram a message, and its watchdog."""

from __future__ import annotations

import os
import socket
import time

PATIENCE_S = 0.5  # for a manager that does not read


class Notifier:
    """Silent when ``NOTIFY_SOCKET`` is not set or does not answer: nobody asked.

    ``watchdog_s``: the manager restarts the service when it hears nothing for so long; None: never.
    """

    def __init__(self, address: str | None, watchdog_s: float | None = None) -> None:
        # an @ stands for the zero byte of the abstract namespace
        self._address = "\0" + address[1:] if address and address[0] == "@" else address
        self.watchdog_s = watchdog_s if address else None

    @classmethod
    def from_environment(cls) -> Notifier:
        """For the manager that started this process, if there is one."""
        return cls(os.environ.get("NOTIFY_SOCKET"), _watchdog_s())

    def send(self, **fields: str | int) -> None:
        """For example ``send(READY=1, STATUS="serving")``."""
        if not self._address:
            return
        text = "\n".join(f"{name}={value}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(PATIENCE_S)
                sock.connect(self._address)
                sock.sendall(text.encode())
        except TimeoutError:
            return  # the manager is busy; it will hear the next one
        except OSError:
            self._address = None

    def reloading(self) -> None:
        """Settings are being read anew; READY=1 tells the end of it."""
        self.send(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)


def _watchdog_s() -> float | None:
    """WATCHDOG_USEC, if it is meant for this process."""
    pid, usec = os.environ.get("WATCHDOG_PID"), os.environ.get("WATCHDOG_USEC", "")
    if pid not in (None, str(os.getpid())) or not usec.isdecimal() or int(usec) == 0:
        return None
    return int(usec) / 1e6
