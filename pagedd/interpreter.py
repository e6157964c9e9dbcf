"""Which Python runs what: the engine, pip, and the host of the one-file executable.

``dist/pagedd`` (``make binary``) holds all that pagedd needs but torch, triton and transformers. It
unpacks itself once into an environment of its own and goes on there; the Python that it was run by,
its host, lends the rest: the entries of the host's ``sys.path`` go behind one's own. Whoever only
asks a daemon needs none of it, so the host is asked when something is about to be loaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pagedd.errors import UsageError

HOST_VARIABLE = "__PAGEDD_PYTHON__"  # who ran the file, from scripts/binary_preamble.py
PATH_VARIABLE = "PEX_EXTRA_SYS_PATH"  # of pex: what the site module of a child puts behind sys.path
ASK_TIMEOUT_S = 30.0
# torch alone is in every path of the engine; the names are those of the package index.
NEEDED = {"torch": "torch>=2.11"}
BESIDE = {"transformers": "transformers>=5"}
_QUESTION = "import json, sys; print(json.dumps([sys.implementation.cache_tag, sys.path[1:]]))"


def is_one_file() -> bool:
    """Whether this process runs out of the one-file executable."""
    return Path(sys.prefix, "PEX-INFO").is_file()


def module_command(module: str) -> list[str]:
    """The command that runs ``module`` in the Python of this process.

    Out of the one file, without what the environment or the folder might put in front of it.
    """
    return [sys.executable, *(["-I"] if is_one_file() else []), "-m", module]


def pip_command() -> list[str]:
    """The command that runs pip: the environment of the one-file executable has none."""
    host = host_python() if is_one_file() else None
    return [host or sys.executable, "-m", "pip"]


def require_torch() -> None:
    """Make torch importable, here and in the processes that are started from now on.

    Errors: ``UsageError``, one line that says what is missing and how to get it.
    """
    borrow_packages()
    if all(find_spec(name) for name in NEEDED):
        return
    python = (host_python() if is_one_file() else sys.executable) or _python()
    wanted = NEEDED | {name: pin for name, pin in BESIDE.items() if not find_spec(name)}
    install = " ".join(f"'{pin}'" for pin in wanted.values())
    said = f"start needs {' and '.join(wanted)}, which {python} does not have"
    other = " (or run this file by a Python that has them)" if is_one_file() else ""
    raise UsageError(f"{said}: {python} -m pip install {install}{other}")


def borrow_packages() -> None:
    """Out of the one file: what the host can import can be imported here and by children too."""
    if not is_one_file() or os.environ.get(PATH_VARIABLE):
        return
    host = host_python()
    entries = [] if host is None else _ask(host)[1]
    if entries:
        os.environ[PATH_VARIABLE] = os.pathsep.join(entries)
        sys.path.extend(entry for entry in entries if entry not in sys.path)


@cache
def host_python() -> str | None:
    """The Python that ran the one file; else the first on the path that has the same version."""
    named = os.environ.get(HOST_VARIABLE)
    if named:
        return named if _ask(named)[0] else None
    own = os.path.join(sys.prefix, "bin")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if folder != own)
    found = (shutil.which(name, path=path) for name in (_python(), "python3", "python"))
    return next((python for python in found if python and _ask(python)[0]), None)


def _python() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


@cache
def _ask(python: str) -> tuple[bool, list[str]]:
    """Whether its compiled modules fit this process, and if so its ``sys.path``."""
    try:
        answer = subprocess.run(
            [python, "-c", _QUESTION], capture_output=True, timeout=ASK_TIMEOUT_S, check=True
        )
        tag, path = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False, []
    if tag != sys.implementation.cache_tag:
        return False, []
    return True, [entry for entry in path if os.path.isdir(entry)]
