"""Compiles the C++ kernels once for this machine and keeps the library in the user's cache.

A library's file name holds two digests: of what it was made from (sources, flags, compiler,
processor) and of its own bytes. So a file that was cut short or changed is seen and built anew.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
ENTRY = "kernels.cpp"
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c")
# Flag sets to try in turn for each instruction set; all but native serve tests.
ISA_FLAGS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "native": (("-march=native",), ("-mcpu=native",), ()),
    "avx512bf16": ((*AVX512, "-mavx512bf16"),),
    "avx512": (AVX512,),
    "avx2": (("-mavx2", "-mfma", "-mf16c"),),
    "generic": ((),),
}
COMPILE_SECONDS = 300


class BuildError(RuntimeError):
    """The kernels cannot be built here; the message says why in one line."""


def find_compiler(environ: Mapping[str, str]) -> list[str]:
    """The compiler's command: ``$CXX`` if set, else the first of ``COMPILERS`` on the path.

    Raises BuildError when there is none.
    """
    named = shlex.split(environ.get("CXX", ""))
    for command in [named] if named else [[name] for name in COMPILERS]:
        found = shutil.which(command[0], path=environ.get("PATH"))
        if found:
            return [found, *command[1:]]
    if named:
        raise BuildError(f"no C++ compiler found ($CXX names {named[0]!r})")
    raise BuildError(f"no C++ compiler found (tried $CXX, {', '.join(COMPILERS)})")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where libraries are kept: ``$XDG_CACHE_HOME/pagedd/kernels``, else under ``~/.cache``."""
    base = environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "pagedd" / "kernels"


def library_file(isa: str, environ: Mapping[str, str]) -> Path:
    """The library for ``isa`` (a key of ``ISA_FLAGS``), built if it is not there or is damaged.

    Raises BuildError when the name is unknown, there is no compiler, it fails, or the cache
    folder cannot be written.
    """
    if isa not in ISA_FLAGS:
        raise BuildError(f"unknown PAGEDD_CPU_ISA {isa!r}: one of {', '.join(ISA_FLAGS)}")
    compiler = find_compiler(environ)
    folder = cache_folder(environ)
    key = _key(compiler, isa)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _kept(folder, key) or _build(compiler, isa, folder, key)
    except OSError as error:
        raise BuildError(f"the kernel cache cannot be used: {error}") from None


def _key(compiler: list[str], isa: str) -> str:
    """Digest of everything that the compiled code depends on."""
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, timeout=COMPILE_SECONDS, check=False
    ).stdout
    parts = [version, repr((compiler, FLAGS, ISA_FLAGS[isa])).encode(), _processor().encode()]
    for source in sorted(SOURCES.iterdir()):
        parts += [source.name.encode(), source.read_bytes()]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:24]


def _processor() -> str:
    """What -march=native depends on: the processor's model and features."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    seen = {line for line in lines if line.startswith(wanted)}
    return "\n".join([platform.machine(), platform.processor(), *sorted(seen)])


def _contents(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:24]


def _kept(folder: Path, key: str) -> Path | None:
    """The intact library of this key; damaged ones, and those of another user, are passed over."""
    for path in folder.glob(f"{key}-*.so"):
        mine = path.stat().st_uid == os.geteuid()
        if mine and path.name == f"{key}-{_contents(path)}.so":
            return path
    return None


def _build(compiler: list[str], isa: str, folder: Path, key: str) -> Path:
    """Compiles beside the final place and moves there at once, so that others may do the same.

    A damaged library is overwritten: the same compiler makes the same bytes, hence the same name.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as workplace:
        made = Path(workplace) / "kernels.so"
        _compile(compiler, isa, made)
        kept = folder / f"{key}-{_contents(made)}.so"
        made.replace(kept)
    return kept


def _compile(compiler: list[str], isa: str, target: Path) -> None:
    """Tries the flag sets of the instruction set in turn."""
    complaint = ""
    for command in _commands(compiler, isa, target):
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"the C++ compiler took over {COMPILE_SECONDS} s") from None
        if ran.returncode == 0:
            return
        errors = [line for line in ran.stderr.splitlines() if "error" in line.lower()]
        complaint = complaint or (errors or ran.stderr.splitlines() or ["no message"])[0]
    raise BuildError(f"the C++ compiler {compiler[0]} failed: {complaint}")


def _commands(compiler: list[str], isa: str, target: Path) -> Iterator[list[str]]:
    for flags in ISA_FLAGS[isa]:
        yield [*compiler, *FLAGS, *flags, "-o", str(target), str(SOURCES / ENTRY)]
