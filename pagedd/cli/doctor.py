"""``pagedd doctor``: whether this machine can serve, and what it will use."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pagedd.cli.flags import add_start_options, collect
from pagedd.cli.lock import lock_holder
from pagedd.cli.parser import examples
from pagedd.config import Config, user_config
from pagedd.errors import PageddError, UsageError
from pagedd.interpreter import module_command, require_torch

DESCRIPTION = """\
Check Python, torch, the device, the compiler, the kernels, the folders, the memory and the model,
and say what pagedd start would use. Exit code 1 when it could not serve."""
EPILOG = examples("pagedd doctor", "pagedd doctor --device cuda", "pagedd doctor --json")
CHILD = "pagedd.runtime.doctor"
CHILD_TIMEOUT_S = 120.0
GOOD, NOTE, BAD = "ok", "note", "bad"


class Finding(NamedTuple):
    """One line: ``verdict`` is ok, note (works, but something could be better) or bad."""

    verdict: str
    subject: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of start, to check what they would do."""
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    add_start_options(parser)


def run(args: argparse.Namespace) -> int:
    """0, or 1 when something is bad."""
    config = collect(args, starts=True)
    findings = [*look_here(config), *look_in_child(config)]
    if args.json:
        import json

        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        _print(findings)
    return 1 if any(finding.verdict == BAD for finding in findings) else 0


def look_here(config: Config) -> Iterator[Finding]:
    """What can be seen without torch."""
    version = platform.python_version()
    yield Finding(GOOD, "python", f"{version} on {platform.system()} {platform.machine()}")
    yield _memory()
    yield _compiler()
    yield from _folders()
    yield _daemon(config)
    yield _model(config)
    path = user_config()
    yield Finding(GOOD, "settings", f"{path}{'' if path.is_file() else ' (not there)'}")


def look_in_child(config: Config) -> list[Finding]:
    """What needs torch: in a process of its own, whose crash is a finding too."""
    import json

    asked = [config[name] for name in ("device", "dtype", "kv-cache-dtype")]
    try:
        require_torch()
    except UsageError as error:
        return [Finding(BAD, "torch", error.message)]
    command = [*module_command(CHILD), *asked]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=CHILD_TIMEOUT_S
        )
        if child.returncode == 0:
            return [Finding(*row) for row in json.loads(child.stdout)]
    except subprocess.TimeoutExpired:
        return [Finding(BAD, "torch", f"does not load within {CHILD_TIMEOUT_S:.0f} s")]
    except (ValueError, TypeError):
        return [Finding(BAD, "torch", f"the check gave no answer that can be read: {CHILD}")]
    last = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
    return [Finding(BAD, "torch", f"cannot be used: {last[0]}")]


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    gib = 1 << 30
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    text = f"{memory.available / gib:.1f} GiB of {memory.total / gib:.1f} GiB free, {cores} cores"
    return Finding(GOOD if memory.available >= gib else NOTE, "memory", text)


def _compiler() -> Finding:
    named = os.environ.get("CXX")
    for name in [named] if named else ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return Finding(GOOD, "compiler", found)
    return Finding(NOTE, "compiler", "no C++ compiler (c++, g++, clang++, $CXX): slower on the CPU")


def _folders() -> Iterator[Finding]:
    from pagedd.paths import cache_dir, runtime_dir, state_dir

    for subject, find in (("cache", cache_dir), ("state", state_dir), ("runtime", runtime_dir)):
        try:
            folder = find()
        except PageddError as error:
            yield Finding(BAD, subject, error.message)
            continue
        existing = _nearest(folder)
        if os.access(existing, os.W_OK | os.X_OK):
            free = shutil.disk_usage(existing).free / (1 << 30)
            yield Finding(GOOD, subject, f"{folder} ({free:.1f} GiB free)")
        else:
            yield Finding(BAD, subject, f"{folder} cannot be written")


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _daemon(config: Config) -> Finding:
    try:
        socket = config.socket
        holder = lock_holder(socket)
    except PageddError as error:
        return Finding(BAD, "socket", error.message)
    running = f"a daemon runs, pid {holder.pid}" if holder is not None else "no daemon runs"
    return Finding(GOOD, "socket", f"{socket} ({running})")


def _model(config: Config) -> Finding:
    from pagedd.models.catalog import CATALOG
    from pagedd.models.resolve import resolve

    name = config["model"]
    try:
        files = resolve(name, need_weights=config["load-format"] != "dummy")
    except PageddError as error:
        later = name in CATALOG and "pagedd pull" in error.message
        return Finding(NOTE if later else BAD, "model", error.message)
    return Finding(GOOD, "model", f"{name}: {files.path}")


def _print(findings: list[Finding]) -> None:
    from pagedd.cli.terminal import Style, one_line

    style = Style(sys.stdout)
    colours = {GOOD: "32", NOTE: "33", BAD: "31"}
    for verdict, subject, text in findings:
        print(f"{style(f'{verdict:<4}', colours[verdict])}  {subject:<9}  {one_line(text)}")
