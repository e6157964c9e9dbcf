"""``make gpu-check``: the tests that need a GPU, and how fast it is; one table at the end.

``--dry``: the same on the CPU, with shapes that any machine does at once; figures mean nothing
then. It needs torch, triton, transformers, numpy, pytest and what pagedd itself does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUDGET_S = 350.0  # for everything; what comes too late is left out, and that is a failure
ATTENTION_SHARE = 0.8  # of the copy's rate, from batch BATCH on
BATCH = 32
FLOOR_SHARE = 0.6  # of the step of the 8B shape
TIMES_PEER = 10.0
REQUESTS = 64


@dataclass(frozen=True)
class Row:
    """A line of the table; ``wanted`` is empty where nothing is asked for."""

    what: str
    found: str
    wanted: str = ""
    good: bool = True


class Check:
    """Runs children one after another, and keeps the rows."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.rows: list[Row] = []
        self._end = time.monotonic() + BUDGET_S

    def run(self, what: str, *command: str, **environment: str) -> str | None:
        """Standard output of a child of this Python; None, and a row, if it failed."""
        print(f"- {what}", flush=True)
        left = self._end - time.monotonic()
        if left <= 0:
            self.rows.append(Row(what, "no time left", "ends in time", good=False))
            return None
        path = os.pathsep.join((str(ROOT), str(ROOT / "kernels")))
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": path} | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if command[0] == "pytest" else None,
                text=True,
                timeout=left,
            )
        except subprocess.TimeoutExpired:
            self.rows.append(Row(what, f"not done in {left:.0f} s", "ends in time", good=False))
            return None
        if done.returncode:
            print(done.stdout)
            self.rows.append(Row(what, f"exit {done.returncode}", "succeeds", good=False))
            return None
        return done.stdout

    def add(self, what: str, found: str, wanted: str = "", good: bool = True) -> None:
        """A row. Nothing is asked of the figures of a dry run."""
        if self.dry:
            wanted, good = "", True
        self.rows.append(Row(what, found, wanted, good))

    @property
    def device(self) -> str:
        return "cpu" if self.dry else "cuda"

    @property
    def dtype(self) -> str:
        return "float32" if self.dry else "bfloat16"


def check_tests(check: Check) -> None:
    """Kernels against references, graphs against eager, swaps, transformers."""
    folders = ["tests/gpu"] if check.dry else ["tests/gpu", "tests/kernels/test_backends.py"]
    plain = ["-o", "addopts=", "--import-mode=importlib", "--strict-markers", "-q"]
    command = ["pytest", *plain, "-p", "no:cacheprovider", "-m", "gpu", *folders]
    out = check.run("tests", *command, PAGEDD_GPU_TESTS_ON=check.device)
    if out is not None:
        counts = re.findall(r"(\d+) (passed|skipped)", out.splitlines()[-1])
        passed = sum(int(count) for count, kind in counts if kind == "passed")
        said = ", ".join(f"{count} {kind}" for count, kind in counts)
        check.rows.append(Row("tests", said, "some pass, none fails", passed > 0))


def check_attention(check: Check) -> None:
    """Rates of decode attention."""
    small = ["--small"] if check.dry else []
    arguments = ["--json", "--device", check.device, "--dtype", check.dtype, *small]
    out = check.run("attention", "pagedd_kernels.bench", *arguments)
    for line in (out or "").splitlines():
        found = json.loads(line)
        share = found["paged"] / found["copy"]
        overhead = found["contiguous"] / found["paged"] - 1
        asked = found["batch"] >= BATCH
        check.add(
            f"attention, {found['batch']} x {found['context']:,}",
            f"{found['paged'] / 1e9:,.0f} GB/s, {share:.0%} of a copy, tables {overhead:+.1%}",
            f">= {ATTENTION_SHARE:.0%} of a copy" if asked else "",
            not asked or share >= ATTENTION_SHARE,
        )


def check_steps(check: Check) -> None:
    """Whole steps against the floor."""
    models = ["tiny"] if check.dry else ["8b", "0.6b"]
    settings = ["2x40", "4x100"] if check.dry else ["1x512", "32x1024", "64x4096"]
    for model in models:
        flags = [flag for setting in settings for flag in ("--setting", setting)]
        flags += ["--device", check.device, "--dtype", check.dtype]
        flags += ["--steps", "3"] if check.dry else []
        out = check.run(f"steps, {model}", "pagedd.runtime.bench_queued", "--model", model, *flags)
        for line in (out or "").splitlines():
            found = json.loads(line)
            share = found["floor"] / found["seconds"]
            asked = model == "8b"
            check.add(
                f"step, {model}, {found['batch']} x {found['context']:,}",
                f"{found['seconds'] * 1e3:.2f} ms, floor {found['floor'] * 1e3:.2f} ms "
                f"({share:.0%}), {found['tokens_per_s']:,.0f} tok/s",
                f">= {FLOOR_SHARE:.0%} of the floor" if asked else "",
                not asked or share >= FLOOR_SHARE,
            )


def check_peer(check: Check) -> None:
    """A daemon against transformers' static batching, the same dummy model and requests."""
    from pagedd.runtime.bench_queued import write_config
    from tests.tiny.tokenizer import save_tokenizer

    count, length = (4, 16) if check.dry else (REQUESTS, 128)
    with tempfile.TemporaryDirectory(prefix="pagedd-") as home:
        model = write_config("tiny" if check.dry else "0.6b", Path(home) / "model")
        save_tokenizer(model)
        result = Path(home) / "result.json"
        command = ["pagedd.cli.main", "bench", "load", "--model", str(model)]
        command += ["--load-format", "dummy", "--device", check.device, "--dtype", check.dtype]
        command += ["--num-requests", str(count), "--concurrency", str(count)]
        command += ["--input-len", str(length), "--output-len", str(length)]
        command += [
            "--max-num-seqs",
            str(count),
            "--max-model-len",
            str(512 if check.dry else 2048),
        ]
        command += ["--against", "hf", "--json", str(result)]
        if check.run("pagedd bench", *command) is None:
            return
        found: dict[str, Any] = json.loads(result.read_text())
    ours, theirs = found["output_tokens_per_s"], found["peer"]["output_tokens_per_s"]
    check.add(
        f"{count} requests, transformers",
        f"{ours:,.0f} tok/s against {theirs:,.0f}: {ours / theirs:.1f} times",
        f">= {TIMES_PEER:.0f} times",
        ours >= TIMES_PEER * theirs,
    )


def main() -> int:
    """0: everything is as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="on the CPU, small")
    dry = parser.parse_args().dry
    began = time.monotonic()
    if not dry:
        import torch

        if not torch.cuda.is_available():
            print("there is no CUDA device for this torch; --dry (make gpu-check DRY=1) needs none")
            return 1
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    check = Check(dry)
    for part in (check_tests, check_attention, check_steps, check_peer):
        part(check)
    print(table(check.rows))
    print(f"{time.monotonic() - began:.0f} s" + (", a dry run: figures mean nothing" * dry))
    return 0 if all(row.good for row in check.rows) else 1


def table(rows: list[Row]) -> str:
    """Columns of their longest cell."""
    cells = [("", "", "")] + [(row.what, row.found, row.wanted) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [""]
    for row in rows:
        parts = zip((row.what, row.found, row.wanted), widths, strict=True)
        good = ("ok" if row.good else "NOT") if row.wanted else ""
        lines.append("  ".join([*(part.ljust(width) for part, width in parts), good]).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
