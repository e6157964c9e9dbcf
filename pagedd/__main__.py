"""``python -m pagedd``: the same as the command ``pagedd``."""

from __future__ import annotations

import sys

from pagedd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
