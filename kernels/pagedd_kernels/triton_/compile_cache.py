"""Where compiled kernels are kept between processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

VARIABLE = "TRITON_CACHE_DIR"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """``$TRITON_CACHE_DIR``, else ``$XDG_CACHE_HOME/pagedd/triton``, else under ``~/.cache``."""
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE])
    base = environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "pagedd" / "triton"


def use_cache(environ: MutableMapping[str, str]) -> None:
    """Let Triton, which reads the variable at each compilation, keep its results there."""
    environ[VARIABLE] = str(cache_folder(environ))
