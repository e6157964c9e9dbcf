"""The folders follow the XDG variables, and a socket folder that others can reach is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pagedd.errors import UsageError
from pagedd.paths import cache_dir, runtime_dir, state_dir

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_without_variables_everything_is_below_home(tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / ".cache/pagedd"
    assert state_dir() == tmp_path / ".local/state/pagedd"
    assert runtime_dir() == tmp_path / f"pagedd-{os.getuid()}"


def test_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/r")
    folders = (cache_dir(), state_dir(), runtime_dir())
    assert folders == (Path("/c/pagedd"), Path("/s/pagedd"), Path("/r/pagedd"))


@pytest.mark.parametrize("value", ["", "relative/folder", "~/x"])
def test_variables_that_are_not_absolute_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, value)
    assert cache_dir() == tmp_path / ".cache/pagedd"
    assert state_dir() == tmp_path / ".local/state/pagedd"
    assert runtime_dir().parent == tmp_path


def test_the_socket_folder_is_made_private_and_asking_creates_nothing() -> None:
    assert not runtime_dir().exists()
    folder = runtime_dir(create=True)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert runtime_dir(create=True) == folder


def test_a_socket_folder_open_to_others_is_refused() -> None:
    runtime_dir(create=True).chmod(0o755)
    with pytest.raises(UsageError, match=r"open to other users \(mode 0755\)"):
        runtime_dir()


def test_a_link_in_place_of_the_socket_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime_dir().symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="not a directory"):
        runtime_dir(create=True)


def test_a_socket_folder_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="cannot create the folder of sockets") as caught:
        runtime_dir(create=True)
    assert "\n" not in caught.value.message


def test_no_home_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(unknown))
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"):
        cache_dir()
