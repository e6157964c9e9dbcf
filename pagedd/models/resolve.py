"""From the name a person gave to the files of a model on this machine.

Nothing is downloaded here and nothing large is read: the daemon and the command line call this
before anything is loaded. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pagedd.errors import ModelError, ModelNotFound
from pagedd.models.catalog import CATALOG, DEFAULT_MODEL, CatalogEntry
from pagedd.models.gguf_meta import MAGIC, shown
from pagedd.models.settings import read_json
from pagedd.paths import cache_dir

__all__ = [
    "DEFAULT_MODEL",
    "ModelFiles",
    "catalog_file",
    "check_folder",
    "hub_snapshot",
    "is_hub_id",
    "resolve",
]

INDEX_FILE = "model.safetensors.index.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_GGUF_HEAD = 24  # bytes: magic, version, tensor count, key count


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model lies: a folder with config.json and safetensors, or one GGUF file."""

    kind: Literal["folder", "gguf"]
    path: Path
    name: str  # for display


def resolve(
    name: str,
    *,
    cache: Path | None = None,
    catalog: Mapping[str, CatalogEntry] = CATALOG,
    need_weights: bool = True,
) -> ModelFiles:
    """The files of the model that ``name`` means.

    In this order: a short name of the catalog, a path that exists, a hub id ``owner/name`` in
    pagedd's cache or in that of huggingface_hub. ``cache`` is pagedd's cache folder. Without
    ``need_weights`` a folder may hold config.json alone (``--load-format dummy``).
    Errors, each one line: ``ModelNotFound`` with the command that fetches it; ``ModelError`` for
    files that are unreadable, empty, truncated or of another kind.
    """
    if not name.strip():
        raise ModelError("the model's name is empty: give a folder, a .gguf file or a hub id")
    cache = cache_dir() if cache is None else cache
    if name in catalog:
        return ModelFiles("gguf", catalog_file(name, cache, catalog), name)
    path = Path(name).expanduser() if name.startswith("~") else Path(name)
    if _exists(path):
        if path.is_dir():
            check_folder(path, need_weights=need_weights)
            return ModelFiles("folder", path, path.resolve().name)
        if not path.is_file():  # a pipe would be waited for
            raise ModelError(f"{path} is neither a file nor a folder")
        check_gguf(path)
        return ModelFiles("gguf", path, path.stem)
    if is_hub_id(name):
        return ModelFiles("folder", hub_snapshot(name, cache, need_weights=need_weights), name)
    if os.sep in name or name.endswith(".gguf"):
        raise ModelNotFound(f"no model at {shown(name)}: there is no such file or folder")
    known = ", ".join(sorted(catalog))
    raise ModelNotFound(
        f"no model {shown(name)}: not a file or folder here, not a hub id (owner/name), "
        f"and not a short name ({known})"
    )


def catalog_file(name: str, cache: Path, catalog: Mapping[str, CatalogEntry] = CATALOG) -> Path:
    """The cached GGUF file of a short name. Errors: ``ModelNotFound``, ``ModelError``."""
    entry = catalog[name]
    path = cache / "models" / entry.file_name
    if not _exists(path):
        raise ModelNotFound(f"{name} is not in {path.parent} yet: run pagedd pull {name}")
    size = path.stat().st_size
    if size != entry.size:
        raise ModelError(
            f"{path} is damaged ({size} bytes instead of {entry.size}): run pagedd pull {name}"
        )
    check_gguf(path)
    return path


def is_hub_id(name: str) -> bool:
    """Whether ``name`` can be the id of a model on the hub: ``owner/name``."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith(".gguf")


def hub_snapshot(repo: str, cache: Path, *, need_weights: bool = True) -> Path:
    """The newest complete snapshot of a hub model, in the layout of the hub's cache.

    Errors: ``ModelNotFound``.
    """
    partly: str | None = None
    for base in (cache / "hub", _hub_cache()):
        model = base / f"models--{repo.replace('/', '--')}"
        for snapshot in _snapshots(model):
            try:
                check_folder(snapshot, need_weights=need_weights)
            except ModelError as error:
                partly = error.message
            else:
                return snapshot
    if partly is not None:
        raise ModelNotFound(f"{repo} is not complete ({partly}): run pagedd pull {repo}")
    raise ModelNotFound(
        f"{repo} is no folder here and in neither cache ({cache / 'hub'}, {_hub_cache()}): "
        f"run pagedd pull {repo}"
    )


def check_folder(folder: Path, *, need_weights: bool = True) -> None:
    """A usable config.json, and every safetensors file that should be there. ``ModelError``."""
    config = folder / "config.json"
    if not _exists(config):
        inside = sorted(folder.glob("*.gguf"))
        hint = f"; it holds {inside[0].name}: give that file's path" if inside else ""
        raise ModelError(f"{folder} holds no config.json{hint}")
    read_json(config)
    if not need_weights:
        return
    index = folder / INDEX_FILE
    if _exists(index):
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
            raise ModelError(f"{index} has no weight_map")
        for shard in sorted(set(names.values())):
            if not _exists(folder / shard):
                raise ModelError(f"{index} names {shown(shard)}, which is missing")
    elif not any(folder.glob("*.safetensors")):
        others = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        hint = "; PyTorch's pickle files are not read" if others else ""
        raise ModelError(f"{folder} holds no .safetensors file{hint}")


def check_gguf(path: Path) -> None:
    """Whether the file begins as a GGUF file must. Errors: ``ModelError``."""
    try:
        with path.open("rb") as file:
            head = file.read(_GGUF_HEAD)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise ModelError(f"{path} is empty")
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a Git LFS pointer and not the file itself: run git lfs pull")
    if not head.startswith(MAGIC):
        raise ModelError(
            f"{path} is not a GGUF file (it does not begin with 'GGUF'); "
            f"a safetensors model is named by its folder"
        )
    if len(head) < _GGUF_HEAD:
        raise ModelError(f"{path} is truncated: {len(head)} bytes")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise ModelError(f"{shown(str(path))} cannot be read: {error.strerror}") from error


def _hub_cache() -> Path:
    """Where huggingface_hub keeps its downloads, by its own environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(os.path.expandvars(value)).expanduser()
    if value := os.environ.get("HF_HOME"):
        return Path(os.path.expandvars(value)).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "huggingface" / "hub"


def _snapshots(model: Path) -> list[Path]:
    """Snapshot folders of a cached model: the one that ``main`` names first, then by age."""
    try:
        found = [p for p in (model / "snapshots").iterdir() if p.is_dir()]
    except OSError:
        return []
    try:
        main = (model / "refs" / "main").read_text().strip()
    except OSError:
        main = ""
    return sorted(found, key=lambda p: (p.name != main, -p.stat().st_mtime))
