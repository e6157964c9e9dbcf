"""Where pagedd keeps its files: the XDG base directories, and a private folder for sockets.

Source: XDG Base Directory Specification 0.8. A variable that is unset, empty or not absolute is
ignored, as the specification asks. Standard library only; every command imports this.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pagedd.errors import UsageError


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/pagedd``, else ``~/.cache/pagedd``; not created. Models live here."""
    return _base("XDG_CACHE_HOME", ".cache") / "pagedd"


def state_dir() -> Path:
    """``$XDG_STATE_HOME/pagedd``, else ``~/.local/state/pagedd``; not created. Logs live here."""
    return _base("XDG_STATE_HOME", ".local/state") / "pagedd"


def runtime_dir(*, create: bool = False) -> Path:
    """The private folder of sockets and locks.

    ``$XDG_RUNTIME_DIR/pagedd``, else ``pagedd-UID`` under ``$TMPDIR`` or ``/tmp``. A folder in a
    place that everyone can write to may have been put there by someone else, so one that exists
    must be a real directory (no link) of this user with mode 0700. Errors: ``UsageError``.
    """
    base = _absolute("XDG_RUNTIME_DIR")
    if base is not None:
        folder = base / "pagedd"
    else:
        folder = (_absolute("TMPDIR") or Path("/tmp")) / f"pagedd-{os.getuid()}"
    if create:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot create the folder of sockets {folder}: {error.strerror}"
            ) from error
    _check_private(folder)
    return folder


def _absolute(variable: str) -> Path | None:
    value = os.environ.get(variable, "")
    return Path(value) if os.path.isabs(value) else None


def _base(variable: str, below_home: str) -> Path:
    base = _absolute(variable)
    if base is not None:
        return base
    try:
        return Path.home() / below_home
    except RuntimeError as error:
        raise UsageError(f"no home folder is known: set HOME or {variable}") from error


def _check_private(folder: Path) -> None:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"cannot look at the folder of sockets {folder}: {error.strerror}"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{folder} is not a directory: remove it or set XDG_RUNTIME_DIR")
    if found.st_uid != os.getuid():
        raise UsageError(f"{folder} belongs to another user: set XDG_RUNTIME_DIR")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"{folder} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"run chmod 700 on it or set XDG_RUNTIME_DIR"
        )
