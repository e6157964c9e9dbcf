"""The ahead-of-time check over one variant whose tile is too large for its registers.

Run by ``test_aot.py`` in a process of its own: exit code 1 is what is wanted.
"""

from __future__ import annotations

import sys

from pagedd_kernels import aot
from pagedd_kernels.triton_ import gate, tuning
from pagedd_kernels.triton_.tuning import Row, Tile

TOO_LARGE = Row(90, "16", "prefill", 128, Tile(128, 128, 4, 3), group=64)

if __name__ == "__main__":
    tuning.TABLE = (TOO_LARGE,)
    aot.cases = lambda: list(gate.of_row(TOO_LARGE))[:1]
    sys.exit(aot.main(sys.argv[1:]))
