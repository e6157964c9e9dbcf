"""Who may use how many cores."""

from __future__ import annotations

import torch

from pagedd_kernels.backend import Backend
from pagedd_kernels.cpu.backend import CpuBackend


def share_cores(backend: Backend, threads: int | None) -> None:
    """Give the cores to the one pool of threads that computes; ``threads`` None: its own choice.

    With the compiled kernels torch keeps one thread: its pool spins while it waits, and two pools
    on the same cores cost a third of the throughput.
    """
    if isinstance(backend, CpuBackend):
        torch.set_num_threads(1)
        if threads is not None:
            backend.set_threads(threads)
    elif threads is not None:
        torch.set_num_threads(threads)
