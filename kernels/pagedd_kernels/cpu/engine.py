"""The native side's state: its threads and their scratch memory."""

from __future__ import annotations

import os
import weakref

from pagedd_kernels.cpu.library import Library


class Engine:
    """A thread pool of the library; freed with this object. Calls on it exclude each other."""

    def __init__(self, library: Library, threads: int) -> None:
        self.library = library
        self.threads = threads
        self.handle: int = library.engine_new(threads)
        if not self.handle:
            raise MemoryError("no memory for the kernels' thread pool")
        weakref.finalize(self, _free, library, self.handle, os.getpid())

    def set_threads(self, threads: int) -> None:
        """The number of threads from the next call on, the calling one included."""
        self.library.set_threads(self.handle, threads)
        self.threads = threads


def _free(library: Library, handle: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has none of the threads to join
        library.engine_free(handle)
