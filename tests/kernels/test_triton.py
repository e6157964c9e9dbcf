"""The Triton kernels without a GPU: interpreted on the CPU, and compiled ahead of time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pagedd_kernels.triton_.tiles import TILES, attention_tile, decode_splits

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def python(*arguments: str, interpret: bool) -> subprocess.CompletedProcess[str]:
    """Run Python with Triton's interpreter on or off, whatever this process has."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_kernels_agree_with_the_reference_in_the_interpreter() -> None:
    files = [str(HERE / "test_backends.py"), str(HERE / "interpreted.py")]
    options = ["-p", "no:cacheprovider", "-m", "not gpu", "-k", "triton or interpreted"]
    run = python("-m", "pytest", *options, *files, interpret=True)
    assert run.returncode == 0, run.stdout[-8000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) > 150
    assert "skipped" not in run.stdout


@pytest.mark.slow
def test_every_variant_compiles_for_gpus_that_are_not_here() -> None:
    run = python("-m", "pagedd_kernels.aot", "--json", interpret=False)
    assert run.returncode in (0, 1), run.stderr[-4000:]
    variants = json.loads(run.stdout)
    assert {variant["architecture"] for variant in variants} == {80, 90}
    assert [variant for variant in variants if not variant["fits"]] == []
    for variant in variants:
        attends = variant["name"].startswith(("decode", "prefill"))
        assert variant["cp_async"] or not attends, variant
        fast = variant["architecture"] == 90 and variant["name"].startswith("prefill bfloat16")
        assert variant["wgmma"] or not fast, variant


def test_the_ahead_of_time_check_refuses_the_interpreter() -> None:
    run = python("-m", "pagedd_kernels.aot", interpret=True)
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("unset TRITON_INTERPRET")


def test_a_device_gets_the_tiles_of_the_next_older_one_known() -> None:
    assert attention_tile(90, 128, "decode", 2) == TILES[90, 128, "decode", 2]
    assert attention_tile(89, 128, "decode", 2) == TILES[80, 128, "decode", 2]
    assert attention_tile(120, 16, "prefill", 2) == TILES[90, 64, "prefill", 2]
    assert attention_tile(80, 96, "prefill", 4) == TILES[80, 128, "prefill", 4]


@pytest.mark.parametrize(
    ("programs", "processors", "keys", "splits"),
    [
        (8, 132, 100_000, 32),  # 33 wanted, the limit
        (40, 132, 100_000, 8),  # 6 wanted, the next power of two
        (264, 132, 100_000, 1),  # the device is full
        (8, 132, 1024, 4),  # no part shorter than 256 keys
        (8, 132, 10, 1),
        (0, 132, 10, 1),
    ],
)
def test_decode_splits(programs: int, processors: int, keys: int, splits: int) -> None:
    assert decode_splits(programs, processors, keys) == splits
