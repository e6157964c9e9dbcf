"""A model of the Hugging Face hub, into pagedd's cache in the hub's own layout."""

from __future__ import annotations

import errno
import fnmatch
import os
import threading
from collections.abc import Callable
from pathlib import Path

from pagedd.errors import ModelError, ModelNotFound, PageddError
from pagedd.models.resolve import check_folder, hub_snapshot

Progress = Callable[[float, str], None]

WANTED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
_UNWANTED = ("*/*",)  # copies in other formats lie in subfolders
_NOT_WRITABLE = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS)
_POLL = 0.1  # seconds between two looks at the growing files


class HubClient:
    """The two questions to the hub. huggingface_hub is imported by the first of them."""

    def __init__(self, endpoint: str | None = None) -> None:
        self.endpoint = endpoint  # None: as the user's environment has it

    def size(self, repo: str) -> int:
        """Bytes of the files that :meth:`download` fetches. Errors: those of huggingface_hub."""
        from huggingface_hub import HfApi

        info = HfApi(endpoint=self.endpoint).model_info(repo, files_metadata=True)
        return sum(
            file.size or 0
            for file in info.siblings or ()
            if "/" not in file.rfilename
            and any(fnmatch.fnmatch(file.rfilename, pattern) for pattern in WANTED)
        )

    def download(self, repo: str, cache: Path) -> Path:
        """Fetch what is missing; goes on where an earlier download stopped."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        return Path(
            snapshot_download(
                repo,
                cache_dir=cache,
                allow_patterns=list(WANTED),
                ignore_patterns=list(_UNWANTED),
                endpoint=self.endpoint,
            )
        )


def pull_hub(repo: str, cache: Path, progress: Progress, hub: HubClient) -> Path:
    """The folder of a complete snapshot; the caller holds the lock.

    Errors: ``ModelNotFound``, ``ModelError``, ``OSError`` for the cache's folder.
    """
    try:
        found = hub_snapshot(repo, cache)
    except ModelNotFound:
        pass
    else:
        progress(1.0, f"{repo} is there already")
        return found
    progress(0.0, f"asking the hub for {repo}")
    try:
        total = hub.size(repo)
        snapshot = _download(repo, cache / "hub", total, progress, hub)
    except Exception as error:  # every kind that requests, sockets and the hub may raise
        raise _explained(repo, error) from error
    try:
        check_folder(snapshot)
    except ModelError as error:
        raise ModelError(
            f"{repo} is no model that can be served: {error.message} "
            f"(of a repository of GGUF files, download one and give its path)"
        ) from error
    progress(1.0, f"{repo} is ready")
    return snapshot


def _download(repo: str, base: Path, total: int, progress: Progress, hub: HubClient) -> Path:
    """Download in a thread and watch the files grow. The thread ends with the process."""
    outcome: list[Path | BaseException] = []

    def work() -> None:
        try:
            outcome.append(hub.download(repo, base))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True, name="hub download")
    thread.start()
    blobs = base / f"models--{repo.replace('/', '--')}" / "blobs"
    while thread.is_alive():
        thread.join(_POLL)
        done = min(_folder_size(blobs), total)
        share = done / total if total else 0.0
        progress(share, f"downloading {repo}, {done / 1e6:.0f} of {total / 1e6:.0f} MB")
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


def _folder_size(folder: Path) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat().st_size for entry in entries)
    except FileNotFoundError:  # not begun, or a file has just got its final name
        return 0


def _explained(repo: str, error: Exception) -> PageddError:
    """What huggingface_hub raised as one line that says what to do."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelNotFound(
            f"{repo} is gated: accept its terms on the hub and log in with hf auth login"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFound(
            f"the hub has no model {repo}, or it is private: if so, log in with hf auth login"
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return ModelNotFound(
            f"cannot download {repo}: it is in no cache and offline mode is on (HF_HUB_OFFLINE)"
        )
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    said = "".join(c for c in said if c.isprintable())[:300] or type(error).__name__
    if isinstance(error, errors.HfHubHTTPError):
        return ModelNotFound(f"cannot download {repo}: the hub answered {said}")
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
        return ModelError(f"cannot keep {repo} in the cache: {error.strerror}")
    kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
    if any(word in kinds for word in ("Connect", "Timeout", "Network", "Proxy", "Protocol")):
        return ModelNotFound(f"cannot download {repo}: no connection to the hub ({said})")
    return ModelError(f"cannot download {repo}: {type(error).__name__}: {said}")
