"""Building the CPU kernels: kept, rebuilt when damaged, refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from pagedd_kernels.backend import select_backend
from pagedd_kernels.cpu import build, library
from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.cpu.build import BuildError, cache_folder, find_compiler, library_file

CPU = torch.device("cpu")
FAKE = """#!/bin/sh
echo called >> "$0.log"
[ "$1" = --version ] && { echo fake 1.0; exit 0; }
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""


def compiler_at(folder: Path, name: str, script: str) -> Path:
    """A compiler of our own: it logs its calls beside itself."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return path


def calls(compiler: Path) -> int:
    """How often the fake compiler compiled or told its version."""
    return len(compiler.with_name(compiler.name + ".log").read_text().splitlines())


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a fake compiler and a cache of its own."""
    fake = compiler_at(tmp_path / "bin", "fake++", FAKE)
    return {"CXX": str(fake), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_a_library_is_built_once_and_kept(environ: dict[str, str]) -> None:
    fake = Path(environ["CXX"])
    first = library_file("generic", environ)
    assert first.read_text() == "made\n"
    assert first.parent == cache_folder(environ)
    assert calls(fake) == 2
    assert library_file("generic", environ) == first
    assert calls(fake) == 3
    assert list(first.parent.iterdir()) == [first]


def test_a_damaged_library_is_built_anew(environ: dict[str, str]) -> None:
    first = library_file("generic", environ)
    first.write_text("ma")
    assert library_file("generic", environ).read_text() == "made\n"
    assert len(list(first.parent.iterdir())) == 1


def test_what_the_code_depends_on_makes_another_library(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {library_file("generic", environ), library_file("avx2", environ)}
    Path(environ["CXX"]).write_text(FAKE.replace("1.0", "1.1"))
    seen.add(library_file("generic", environ))
    monkeypatch.setattr(build, "_processor", lambda: "another")
    seen.add(library_file("generic", environ))
    sources = tmp_path / "src"
    sources.mkdir()
    (sources / "kernels.cpp").write_text("// other")
    monkeypatch.setattr(build, "SOURCES", sources)
    seen.add(library_file("generic", environ))
    assert len(seen) == 5


def test_builds_at_the_same_time_agree(environ: dict[str, str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: library_file("generic", environ), range(8)))
    assert {path.read_text() for path in paths} == {"made\n"}
    assert len(set(paths)) == 1
    assert [path.name for path in paths[0].parent.iterdir()] == [paths[0].name]


def test_the_first_error_of_the_compiler_is_the_reason(
    environ: dict[str, str], tmp_path: Path
) -> None:
    script = FAKE.replace("echo made", "echo 'x.h:1: note'; echo 'x.h:1: error: no' >&2; exit 1; :")
    compiler = compiler_at(tmp_path / "bin", "broken++", script)
    environ["CXX"] = str(compiler)
    with pytest.raises(BuildError, match=r"broken\+\+ failed: x\.h:1: error: no$"):
        library_file("native", environ)
    assert calls(compiler) == 4  # version, and each flag set


def test_a_flag_set_that_the_compiler_lacks_gives_way_to_the_next(
    environ: dict[str, str], tmp_path: Path
) -> None:
    script = FAKE.replace("while", 'case "$*" in *-march=native*) exit 1;; esac\nwhile', 1)
    environ["CXX"] = str(compiler_at(tmp_path / "bin", "old++", script))
    assert library_file("native", environ).exists()


def test_no_compiler_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"tried \$CXX, c\+\+, g\+\+, clang\+\+"):
        find_compiler({"PATH": str(tmp_path)})
    with pytest.raises(BuildError, match="CXX names 'nowhere'"):
        find_compiler({"PATH": str(tmp_path), "CXX": "nowhere -m64"})


def test_a_compiler_with_arguments(environ: dict[str, str]) -> None:
    assert find_compiler({**environ, "CXX": environ["CXX"] + " -m64"})[1:] == ["-m64"]


def test_a_cache_that_cannot_be_written_is_a_reason(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    environ["XDG_CACHE_HOME"] = str(tmp_path / "file")
    with pytest.raises(BuildError, match="the kernel cache cannot be used"):
        library_file("generic", environ)


def test_a_relative_cache_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    expected = Path("/home/someone/.cache/pagedd/kernels")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == expected


def test_an_unknown_instruction_set_is_a_reason(environ: dict[str, str]) -> None:
    with pytest.raises(BuildError, match="unknown PAGEDD_CPU_ISA 'mmx': one of native"):
        library_file("mmx", environ)


def test_without_a_compiler_the_torch_backend_serves_and_says_why(tmp_path: Path) -> None:
    program = (
        "import torch; from pagedd_kernels.backend import select_backend\n"
        "s = select_backend(torch.device('cpu'), torch.bfloat16)\n"
        "print(s.backend.name, dict(s.refused)['cpu'])"
    )
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("torch no C++ compiler found (tried $CXX, c++, g++, clang++)")


def test_refused_devices_and_dtypes() -> None:
    assert CpuBackend.unavailable(torch.device("cuda"), torch.float32) is not None
    assert CpuBackend.unavailable(CPU, torch.int8) == "torch.int8 is no activation dtype"


def test_a_library_that_failed_is_a_reason_and_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDD_CPU_ISA", "mmx")
    library.load_library.cache_clear()
    try:
        reason = CpuBackend.unavailable(CPU, torch.float32)
        assert reason is not None
        assert reason.startswith("unknown PAGEDD_CPU_ISA")
        with pytest.raises(RuntimeError, match="unknown PAGEDD_CPU_ISA"):
            CpuBackend()
        assert select_backend(CPU, torch.float32).backend.name == "torch"
    finally:
        library.load_library.cache_clear()
