"""``make``: what a newcomer sees while the environment is made."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Makes an environment whose Python does nothing but note how it was called.
PYTHON = """#!/bin/sh
echo "$@" >> {told}
case "$*" in "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;; esac
"""


def test_the_environment_is_made_with_one_line_and_a_quiet_pip(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    told, python, venv = (tmp_path / name for name in ("told", "python", "venv"))
    python.write_text(PYTHON.format(told=told))
    python.chmod(0o755)
    done = subprocess.run(
        [make, f"{venv}/ready", f"VENV={venv}", f"PYTHON={python}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"making {venv} with torch and the rest: this takes a few minutes\n"
    pips = [line for line in told.read_text().splitlines() if line.startswith("-m pip")]
    assert len(pips) == 2
    assert all("--disable-pip-version-check --quiet install" in line for line in pips)
