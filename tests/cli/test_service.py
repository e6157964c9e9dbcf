"""``pagedd service``: the files, and what the service manager is told."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pagedd.cli.main import main
from pagedd.cli.service_files import UNIT, _quoted
from tests.cli.terminal import environment, run
from tests.packaging.test_interpreter import WITHOUT

# Notes its arguments, and answers as the files beside it say.
SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/told"
case "$*" in *show*) cat "$(dirname "$0")/shown" 2>/dev/null ;; esac
exit "$(cat "$(dirname "$0")/code" 2>/dev/null || echo 0)"
"""


class Manager:
    """A systemctl of the test's own, first in PATH, and a home for its files."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "bin"
        self.folder.mkdir()
        program = self.folder / "systemctl"
        program.write_text(SYSTEMCTL)
        program.chmod(0o755)
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        self.env = environment(home, PATH=path, XDG_CONFIG_HOME=str(home / "conf"))
        del self.env["PAGEDD_HTTP"]
        self.unit = home / "conf" / "systemd" / "user" / UNIT

    @property
    def told(self) -> list[str]:
        told = self.folder / "told"
        return told.read_text().splitlines() if told.exists() else []

    def service(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return run("service", *arguments, env=self.env)


@pytest.fixture
def manager(home: Path) -> Manager:
    return Manager(home)


def test_install_writes_a_unit_with_the_options_and_names_the_next_command(
    manager: Manager,
) -> None:
    done = manager.service(
        "install", "--max-num-seqs=3", "--no-prefix-cache", "--allow-origin", "https://a.example"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode()
    assert f"wrote {manager.unit}" in said
    assert "next: systemctl --user enable --now pagedd.service" in said
    assert manager.told == ["--user daemon-reload"]
    text = manager.unit.read_text()
    (start,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    flags = "--max-num-seqs=3 --no-prefix-cache --allow-origin=https://a.example"
    assert start == f"ExecStart={sys.executable} -m pagedd.cli.main start {flags}"
    assert manager.unit.stat().st_mode & 0o777 == 0o600
    assert list(manager.unit.parent.iterdir()) == [manager.unit], "no draft is left"


def test_a_second_install_replaces_the_first(manager: Manager) -> None:
    manager.service("install", "--max-num-seqs=3")
    manager.service("install", "--max-num-seqs=4", "--drain-timeout=90")
    text = manager.unit.read_text()
    assert "--max-num-seqs=4" in text
    assert "--max-num-seqs=3" not in text
    assert "TimeoutStopSec=105" in text


def test_print_writes_nothing(manager: Manager) -> None:
    for flag in ("--print", "--dry-run"):
        done = manager.service("install", flag, "--max-num-seqs=3")
        assert done.returncode == 0
        assert b"[Service]\nType=notify\n" in done.stdout
    assert not manager.unit.exists()
    assert manager.told == []


def test_wrong_options_and_files_are_refused_before_anything_is_written(manager: Manager) -> None:
    for wrong in (["--max-num-seqs=0"], ["--config=/none"], ["--listen=0.0.0.0:1"]):
        done = manager.service("install", *wrong)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
    for missing in ("./none", "none.gguf", "/none"):
        done = manager.service("install", f"--model={missing}")
        assert done.returncode == 1
        assert missing.encode() in done.stderr
    assert not manager.unit.exists()
    manager.unit.parent.parent.mkdir(parents=True)
    manager.unit.parent.write_text("in the way")
    done = manager.service("install")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1


def test_without_torch_nothing_is_installed(manager: Manager) -> None:
    def service(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT, "service", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=manager.env, timeout=60, check=False
        )

    done = service("install", "--max-num-seqs=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"start needs torch and transformers, which {sys.executable} does not" in done.stderr
    assert f"{sys.executable} -m pip install 'torch>=" in done.stderr
    assert not manager.unit.exists()
    assert manager.told == []
    assert service("install", "--print").returncode == 0, "the file may be for another machine"


def test_paths_become_absolute_and_odd_characters_survive(manager: Manager, home: Path) -> None:
    folder = home / 'a "strange" 100% $HOME folder'
    folder.mkdir()
    (folder / "keys").write_text("k\n")
    (folder / "pagedd.toml").write_text("max-num-seqs = 2\n")
    (folder / "model").mkdir()
    command = [sys.executable, "-m", "pagedd.cli.main", "service", "install", "--print"]
    command += ["--api-key=@keys", "--config=pagedd.toml", "--model=model", "--socket=~/s"]
    done = subprocess.run(command, env=manager.env, cwd=folder, capture_output=True, check=True)
    (start,) = [line for line in done.stdout.decode().splitlines() if line.startswith("ExecStart=")]
    # how systemd reads it: percents and dollars are doubled, the rest is as in a shell
    words = shlex.split(start.removeprefix("ExecStart=").replace("$$", "$").replace("%%", "%"))
    assert words[4:] == [
        f"--config={folder}/pagedd.toml",
        f"--api-key=@{folder}/keys",
        f"--model={folder}/model",
        f"--socket={home}/s",
    ]


def test_a_short_name_is_no_path(manager: Manager) -> None:
    done = manager.service("install", "--print", "--model", "smollm2-135m-instruct")
    assert b"--model=smollm2-135m-instruct\n" in done.stdout


@pytest.mark.parametrize("text", ["", "a b", 'q"', "\\", "%h", "$X", "tab\t", "new\nline", "'"])
def test_quoting_keeps_one_argument_in_one_line(text: str) -> None:
    quoted = _quoted(text)
    assert "\n" not in quoted
    assert quoted.replace("%%", "").count("%") == 0
    assert quoted.replace("$$", "").count("$") == 0


def test_variables_of_the_shell_are_named(manager: Manager) -> None:
    manager.env["PAGEDD_MAX_QUEUE"] = "7"
    done = manager.service("install")
    assert b"the service does not know PAGEDD_MAX_QUEUE" in done.stderr


def test_without_a_manager_the_file_is_written_all_the_same(manager: Manager) -> None:
    (manager.folder / "code").write_text("1")
    done = manager.service("install")
    assert done.returncode == 0
    assert b"systemctl --user daemon-reload: exit code 1" in done.stderr
    assert manager.unit.exists()


def test_uninstall_stops_it_and_removes_the_file(manager: Manager) -> None:
    manager.service("install")
    done = manager.service("uninstall")
    assert done.returncode == 0
    assert f"removed {manager.unit}" in done.stdout.decode()
    assert not manager.unit.exists()
    assert manager.told[1:] == [f"--user disable --now {UNIT}", "--user daemon-reload"]
    again = manager.service("uninstall")
    assert again.returncode == 0
    assert b"is not installed" in again.stderr


def test_status_tells_whether_it_is_there_and_runs(manager: Manager) -> None:
    done = manager.service("status")
    assert done.returncode == 3
    assert b"not installed" in done.stdout
    manager.service("install")
    shown = manager.folder / "shown"
    shown.write_text("ActiveState=inactive\nSubState=dead\nUnitFileState=disabled\nMainPID=0\n")
    done = manager.service("status")
    assert done.returncode == 3
    assert b"state: inactive (dead)\nat login: disabled\n" in done.stdout
    shown.write_text(
        "ActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=42\n"
        "StatusText=ready: m on unix:/a=b\n"
    )
    done = manager.service("status")
    assert done.returncode == 0
    assert b"state: active (running), pid 42" in done.stdout
    assert b"it says: ready: m on unix:/a=b" in done.stdout


def test_on_macos_it_is_a_launchd_agent(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["service", "install", "--max-num-seqs", "3"]) == 0
    path = home / "Library" / "LaunchAgents" / "dev.pagedd.plist"
    said = capsys.readouterr().out
    assert f"wrote {path}" in said
    assert f"next: launchctl bootstrap gui/{os.getuid()} {path}" in said
    agent = plistlib.loads(path.read_bytes())
    assert agent["ProgramArguments"][-2:] == ["start", "--max-num-seqs=3"]
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert Path(agent["StandardErrorPath"]) == home / "state" / "pagedd" / "pagedd.log"
    assert Path(agent["StandardErrorPath"]).parent.is_dir()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_has_no_complaint_about_the_unit(manager: Manager, home: Path) -> None:
    done = manager.service("install", "--print", "--socket=~/a $b 100%.sock")
    unit = home / UNIT
    unit.write_bytes(done.stdout)
    env = {**manager.env, "XDG_RUNTIME_DIR": str(home)}
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--user", str(unit)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if "Failed to initialize manager" in checked.stderr:
        pytest.skip("systemd-analyze needs more of a system than there is")
    assert (checked.returncode, checked.stderr) == (0, "")
