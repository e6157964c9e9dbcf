"""The files by which systemd and launchd start the daemon for a user. Standard library only."""

from __future__ import annotations

import os
import plistlib
from collections.abc import Sequence
from pathlib import Path

UNIT = "pagedd.service"
LABEL = "dev.pagedd"
STOP_GRACE_S = 15  # beyond the drain, until a service that does not end is killed

# Hardening that a user's manager can give: nothing here needs a capability or a mount of its own.
# MemoryDenyWriteExecute is missing because kernels are compiled while the daemon runs.
_UNIT = """\
[Unit]
Description=pagedd, a local LLM inference daemon
Documentation=man:pagedd(1) man:pagedd.toml(5)
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
# a wrong option stays wrong
RestartPreventExitStatus=2
SuccessExitStatus=130
# the first start downloads the model and compiles the kernels
TimeoutStartSec=30min
TimeoutStopSec={stop_s}
# fed while the engine moves
WatchdogSec=60
# the daemon ends its engine itself, and starts another when that is killed
KillMode=mixed
OOMPolicy=continue
UMask=0077
LimitNOFILE=65536
NoNewPrivileges=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def unit_path() -> Path:
    """``$XDG_CONFIG_HOME/systemd/user/pagedd.service``, else below ``~/.config``."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "systemd" / "user" / UNIT


def plist_path() -> Path:
    """``~/Library/LaunchAgents/dev.pagedd.plist``."""
    return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"


def unit(command: Sequence[str], drain_timeout: float) -> str:
    """A systemd user unit, see systemd.service(5) and systemd.exec(5)."""
    stop_s = int(drain_timeout) + STOP_GRACE_S
    return _UNIT.format(command=" ".join(map(_quoted, command)), stop_s=stop_s)


def plist(command: Sequence[str], drain_timeout: float, log_file: Path) -> str:
    """A launchd agent, see launchd.plist(5). ``log_file`` gets what the daemon does not log."""
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": int(drain_timeout) + STOP_GRACE_S,
        "ProcessType": "Interactive",  # no less of the processor than a program in front
        "SoftResourceLimits": {"NumberOfFiles": 65536},
        "Umask": 0o077,
        "StandardOutPath": str(log_file),
        "StandardErrorPath": str(log_file),
    }
    return plistlib.dumps(agent, sort_keys=False).decode()


def _quoted(argument: str) -> str:
    """As a unit's command line wants it: % and $ mean something there, quotes and spaces too."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("$", "$$").replace("\n", "\\n").replace("\t", "\\t")
    plain = escaped and not set(escaped) & set(" \\\"';#")
    return escaped if plain else f'"{escaped}"'
