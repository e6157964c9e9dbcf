"""Where torch comes from: the one-file executable asks its host, and ``start`` says what lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pagedd import interpreter
from pagedd.errors import UsageError
from tests.cli.terminal import environment

HIDDEN = ("torch", "triton", "transformers")
TAG = sys.implementation.cache_tag
# None in sys.modules: importing it fails, as where it is not installed
WITHOUT = (
    f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r}));"
    "from pagedd.cli.main import main; sys.exit(main(sys.argv[1:]))"
)
Host = Callable[..., str]


@pytest.fixture
def one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if this process ran out of the one file, in an environment of its own without torch."""
    prefix = tmp_path / "own"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "PEX-INFO").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "path", [str(prefix)])
    monkeypatch.setenv("PATH", str(prefix / "bin"))
    for name in HIDDEN:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for variable in (interpreter.HOST_VARIABLE, interpreter.PATH_VARIABLE):
        monkeypatch.setenv(variable, "")  # so that what is set is taken back
    interpreter.host_python.cache_clear()
    interpreter._ask.cache_clear()
    return prefix


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Makes a Python that answers what it is told to."""

    def make(folder: str, name: str, path: list[str], tag: str = TAG) -> str:
        python = tmp_path / folder / name
        python.parent.mkdir(exist_ok=True)
        entries = ", ".join(f'"{entry}"' for entry in path)
        python.write_text(f"#!/bin/sh\necho '[\"{tag}\", [{entries}]]'\n")
        python.chmod(0o755)
        return str(python)

    return make


@pytest.fixture
def packages(tmp_path: Path) -> str:
    """A folder of packages with a torch in it."""
    (tmp_path / "packages" / "torch").mkdir(parents=True)
    (tmp_path / "packages" / "torch" / "__init__.py").touch()
    return str(tmp_path / "packages")


@pytest.mark.parametrize("flags", [(), ("--detach",), ("--model", "none"), ("--max-num-seqs", "x")])
def test_start_without_torch_is_one_line_and_nothing_is_done(
    home: Path, flags: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "start", *flags],
        capture_output=True,
        text=True,
        env=environment(home),
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"start needs torch and transformers, which {sys.executable} does not" in done.stderr
    assert f"{sys.executable} -m pip install 'torch>=" in done.stderr
    assert list(home.iterdir()) == []


def test_the_doctor_says_so_too(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "doctor"],
        capture_output=True,
        text=True,
        env=environment(home),
        timeout=60,
        check=False,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.split()[1] == "torch"]
    assert line.startswith("bad ")
    assert "-m pip install 'torch>=" in done.stdout


def test_an_ordinary_installation_borrows_nothing() -> None:
    assert not interpreter.is_one_file()
    before = (list(sys.path), dict(os.environ))
    interpreter.require_torch()
    assert before == (list(sys.path), dict(os.environ))
    assert interpreter.module_command("a.b") == [sys.executable, "-m", "a.b"]
    assert interpreter.pip_command() == [sys.executable, "-m", "pip"]


def test_the_one_file_runs_its_children_without_what_the_environment_puts_in_front(
    one_file: Path,
) -> None:
    assert interpreter.module_command("a.b") == [sys.executable, "-I", "-m", "a.b"]


def test_the_one_file_borrows_from_the_python_that_ran_it(
    one_file: Path, host: Host, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran_it = host("venv", "python3", [packages, "/no/such/folder"])
    monkeypatch.setenv(interpreter.HOST_VARIABLE, ran_it)
    monkeypatch.setenv("PATH", str(Path(host("other", "python3", [])).parent))
    interpreter.require_torch()
    assert sys.path == [str(one_file), packages], "behind one's own"
    assert os.environ[interpreter.PATH_VARIABLE] == packages
    assert interpreter.pip_command() == [ran_it, "-m", "pip"]


def test_else_from_the_first_on_the_path_of_the_same_version(
    one_file: Path, host: Host, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host("own/bin", "python3", [])  # the one file's own environment is in front of the path
    host("old", "python3", [], tag="cpython-36")
    found = host("new", "python", [packages])
    path = os.pathsep.join(str(one_file.parent / name) for name in ("own/bin", "old", "new"))
    monkeypatch.setenv("PATH", path)
    assert interpreter.host_python() == found
    interpreter.require_torch()
    assert packages in sys.path


@pytest.mark.parametrize("tag", ["cpython-36", TAG])
def test_a_host_without_torch_or_of_another_version_is_told(
    one_file: Path, host: Host, packages: str, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    ran_it = host("venv", "python3", [packages] if tag != TAG else [], tag=tag)
    monkeypatch.setenv(interpreter.HOST_VARIABLE, ran_it)
    with pytest.raises(UsageError) as refused:
        interpreter.require_torch()
    version = "python{}.{}".format(*sys.version_info[:2])
    python = ran_it if tag == TAG else version
    assert f"start needs torch and transformers, which {python} does not" in refused.value.message
    assert "run this file by a Python that has them" in refused.value.message


def test_a_host_that_does_not_answer_is_none(
    one_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in ("", "no json", "[1]"):
        python = tmp_path / "broken"
        python.write_text(f"#!/bin/sh\necho '{said}'\n")
        python.chmod(0o755)
        monkeypatch.setenv(interpreter.HOST_VARIABLE, str(python))
        interpreter.host_python.cache_clear()
        interpreter._ask.cache_clear()
        assert interpreter.host_python() is None
