"""What needs torch is measured in a process of its own: a job goes in, progress and a result come
out, as lines of JSON."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pagedd.errors import PageddError
from pagedd.interpreter import borrow_packages, module_command


def run_child(
    module: str, job: dict[str, Any], progress: Callable[[float, str], None], failed: str
) -> dict[str, Any]:
    """The result of ``python -m module`` for ``job``.

    The child says ``{"fraction", "what"}`` while it goes on and ``{"result"}`` at the end. Errors:
    ``PageddError`` that begins with ``failed`` and ends with the last line that the child said.
    """
    borrow_packages()
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            module_command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it died before it read: its last line says why
                child.stdin.write(json.dumps(job))
                child.stdin.close()
            result: dict[str, Any] | None = None
            for line in child.stdout:
                said = json.loads(line)
                if "result" in said:
                    result = said["result"]
                else:
                    progress(said["fraction"], said["what"])
            code = child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
        if result is None or code != 0:
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:] or [f"exit code {code}"]
            raise PageddError(f"{failed}: {last[0]}")
    return result
