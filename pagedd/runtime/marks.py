"""Marks: places in the queue of a device, to wait for and to measure between."""

# torch's events carry few annotations:
# mypy: allow-untyped-calls
from __future__ import annotations

from time import perf_counter
from typing import Protocol

import torch


class Mark(Protocol):
    """A place in the queue, behind all that was added before."""

    def wait(self) -> None:
        """Until the device has come there. Waits without spinning."""

    def since(self, earlier: Mark) -> float:
        """Seconds that the device took from ``earlier``; it has come to both."""


class HostMark:
    """Where the device is the host, whatever was added is done."""

    def __init__(self) -> None:
        self.at = perf_counter()

    def wait(self) -> None:
        """See ``Mark``."""

    def since(self, earlier: Mark) -> float:
        """See ``Mark``."""
        assert isinstance(earlier, HostMark)
        return self.at - earlier.at


class CudaMark:
    """An event of the current stream."""

    def __init__(self, device: torch.device) -> None:
        self.event = torch.cuda.Event(enable_timing=True, blocking=True)
        self.event.record(torch.cuda.current_stream(device))

    def wait(self) -> None:
        """See ``Mark``."""
        self.event.synchronize()

    def since(self, earlier: Mark) -> float:
        """See ``Mark``."""
        assert isinstance(earlier, CudaMark)
        return float(earlier.event.elapsed_time(self.event)) / 1e3


def mark(device: torch.device) -> Mark:
    """The end of the device's queue as it is now."""
    return CudaMark(device) if device.type == "cuda" else HostMark()
