"""``pagedd service``: let systemd or launchd start the daemon, and keep it running."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pagedd.cli.flags import add_start_options, collect
from pagedd.cli.launch import default_log
from pagedd.cli.parser import examples
from pagedd.cli.service_files import LABEL, UNIT, plist, plist_path, unit, unit_path
from pagedd.cli.start import find_model, flags_again
from pagedd.cli.terminal import say
from pagedd.config import Config, check_start
from pagedd.errors import PageddError
from pagedd.interpreter import host_python, is_one_file, module_command, require_torch
from pagedd.paths import state_dir

DESCRIPTION = """\
Let the service manager of this user start the daemon: systemd, or launchd on macOS.
install writes its file, with the options of start that are given here, and says how it is started;
uninstall stops the service and removes the file; status says how the service is."""
EPILOG = examples(
    "pagedd service install --model ~/models/Qwen3-0.6B --max-num-seqs 16",
    "pagedd service install --print",
    "pagedd service status",
    "pagedd service uninstall",
)
NOT_RUNNING = 3
MANAGER_TIMEOUT_S = 30.0
_FILES = ("--config", "--socket", "--log-file", "--tls-cert", "--tls-key")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, and the options that the service starts the daemon with."""
    parser.add_argument(
        "action", choices=["install", "uninstall", "status"], help="what to do with the service"
    )
    parser.add_argument(
        "--print",
        "--dry-run",
        dest="show",
        action="store_true",
        help="with install: print the file, and write nothing",
    )
    add_start_options(parser)


def run(args: argparse.Namespace) -> int:
    """0; with ``status`` 3 when the service does not run."""
    if args.action == "install":
        config = collect(args, starts=True)
        check_start(config)
        if not args.show:
            require_torch()  # the manager would start it in vain, again and again
        if not Path(config["model"]).expanduser().exists():
            find_model(config)
        return _install(args, config)
    return _uninstall() if args.action == "uninstall" else _status()


def _install(args: argparse.Namespace, config: Config) -> int:
    command = [*_program(), "start", *map(_absolute, flags_again(args))]
    drain = config["drain-timeout"]
    if _on_macos():
        path, text = plist_path(), plist(command, drain, default_log(config))
    else:
        path, text = unit_path(), unit(command, drain)
    if args.show:
        print(text, end="")
        return 0
    if _on_macos():
        state_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(path, text)
    print(f"wrote {path}")
    _tell_variables()
    if _on_macos():
        print(f"next: launchctl bootstrap gui/{os.getuid()} {path}")
        return 0
    _reload_manager()
    print(f"next: systemctl --user enable --now {UNIT}")
    print("and, to have it run while you are not logged in: loginctl enable-linger")
    return 0


def _uninstall() -> int:
    path = plist_path() if _on_macos() else unit_path()
    if not path.exists():
        say(f"the service is not installed: there is no {path}")
        return 0
    if _on_macos():
        _manager("launchctl", "bootout", f"gui/{os.getuid()}/{LABEL}")
    else:
        _manager("systemctl", "--user", "disable", "--now", UNIT)
    path.unlink(missing_ok=True)
    print(f"removed {path}")
    if not _on_macos():
        _reload_manager()
    return 0


def _status() -> int:
    path = plist_path() if _on_macos() else unit_path()
    if not path.exists():
        print(f"not installed: there is no {path}")
        print("next: pagedd service install")
        return NOT_RUNNING
    print(f"installed: {path}")
    if _on_macos():
        found = _manager("launchctl", "print", f"gui/{os.getuid()}/{LABEL}")
        runs = found is not None and "state = running" in found
        print("it runs" if runs else "it does not run")
        return 0 if runs else NOT_RUNNING
    wanted = "ActiveState,SubState,UnitFileState,MainPID,StatusText"
    found = _manager("systemctl", "--user", "show", UNIT, f"--property={wanted}")
    if found is None:
        return NOT_RUNNING
    facts = dict(line.partition("=")[::2] for line in found.splitlines())
    active = facts.get("ActiveState", "unknown")
    pid = facts.get("MainPID", "0")
    print(f"state: {active} ({facts.get('SubState', '')})" + (f", pid {pid}" if pid != "0" else ""))
    print(f"at login: {facts.get('UnitFileState') or 'not enabled'}")
    if facts.get("StatusText"):
        print(f"it says: {facts['StatusText']}")
    return 0 if active == "active" else NOT_RUNNING


def _program() -> list[str]:
    """What runs this command, by its absolute path.

    The one file is run by its host: a service has another path, on which torch is not found.
    """
    one_file = os.environ.get("PEX", "")
    if is_one_file() and Path(one_file).is_file():
        host = host_python()
        return [os.path.abspath(path) for path in (host, one_file) if path]
    return module_command("pagedd.cli.main")


def _absolute(argument: str) -> str:
    """A service starts in another folder."""
    flag, _, value = argument.partition("=")
    if flag in _FILES or (flag == "--model" and Path(value).expanduser().exists()):
        return f"{flag}={os.path.abspath(os.path.expanduser(value))}"
    if flag == "--api-key":
        items = [item.strip() for item in value.split(",")]
        keys = [
            f"@{os.path.abspath(os.path.expanduser(i[1:]))}" if i[:1] == "@" else i for i in items
        ]
        return f"{flag}={','.join(keys)}"
    return argument


def _write(path: Path, text: str) -> None:
    """Whole or not at all; for its owner alone, because a key may be in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise PageddError(f"cannot write {path}: {error.strerror}") from error


def _tell_variables() -> None:
    named = sorted(name for name in os.environ if name.startswith("PAGEDD_") and os.environ[name])
    if named:
        say(f"the service does not know {', '.join(named)}: give flags, or write pagedd.toml")


def _reload_manager() -> None:
    _manager("systemctl", "--user", "daemon-reload")


def _manager(*command: str) -> str | None:
    """What the service manager prints; None, and a line that says why, when it does not obey."""
    try:
        done = _ran(command)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or "it does not answer"
        say(f"{' '.join(command)}: {reason}")
        return None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        say(f"{' '.join(command)}: {lines[-1] if lines else f'exit code {done.returncode}'}")
        return None
    return done.stdout


def _ran(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=MANAGER_TIMEOUT_S,
        check=False,
    )


def _on_macos() -> bool:
    return sys.platform == "darwin"
