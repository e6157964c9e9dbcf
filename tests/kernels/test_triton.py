"""The Triton kernels without a GPU: interpreted on the CPU, and compiled ahead of time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from pagedd_kernels.triton_ import backend
from pagedd_kernels.triton_.tuning import TABLE, Tile, attention_tile, decode_splits

HERE = Path(__file__).parent
CUDA = torch.device("cuda")


def interpret(marks: str, chosen: str, at_least: int) -> None:
    """Run the contracts and what is Triton's alone in the interpreter; all must pass.

    Without plugins, nor pytest's collections of garbage for errors in finalizers, which take longer
    than the kernels: Python tells of such errors on standard error.
    """
    names = ("test_backends.py", "test_graph_backends.py", "interpreted.py")
    files = [str(HERE / name) for name in names]
    options = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:unraisableexception",
        "--capture=no",
        "-m",
        marks,
        "-k",
        f"(triton or interpreted) and ({chosen})",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=HERE.parents[1],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) >= at_least
    assert "skipped" not in run.stdout
    assert "Exception ignored" not in run.stderr


# The interpreter takes a fraction of a millisecond for each operation of a program: with bfloat16
# and float16, what takes many programs runs for one shape unless slow tests are asked for.
MANY = "mixed_batch or test_kv_write or borders or tiles or others"
QUICK = f"not (({MANY}) and float16 and not g7) and not (mixed_batch and g1)"


def test_the_kernels_agree_with_the_reference_in_the_interpreter() -> None:
    interpret("not gpu and not slow", QUICK, 100)


@pytest.mark.slow
def test_the_kernels_agree_with_the_reference_on_the_whole_grid() -> None:
    interpret("not gpu", "not nothing", 200)


def test_a_device_gets_the_tiles_of_its_family() -> None:
    def tile(architecture: int, head_dim: int, group: int = 4) -> Tile:
        sizes = {"group": group, "page_size": 16, "batch": 8}
        return attention_tile(architecture, "16", "decode", head_dim, **sizes)

    assert tile(90, 128) == next(row.tile for row in TABLE if row[:4] == (90, "16", "decode", 128))
    assert tile(86, 128) == tile(89, 128) == tile(120, 128) == tile(80, 128)
    assert tile(103, 96) == tile(100, 128)
    assert tile(90, 16) == tile(90, 64)
    assert tile(80, 128, group=17).block_m == 32
    assert tile(80, 128, group=71).block_m == 128  # wider than any row: widened
    with pytest.raises(ValueError, match="heads of 257 values: at most 256"):
        tile(90, 257)


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


def test_a_device_that_cannot_convert_a_cache_dtype_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusal(architecture: int, cache_dtype: torch.dtype | None) -> str | None:
        monkeypatch.setattr(backend, "_architecture", lambda device: architecture)
        return backend.TritonBackend.unavailable(CUDA, torch.bfloat16, cache_dtype)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    assert refusal(80, e4m3) == (
        "a cache of torch.float8_e4m3fn needs compute capability 8.9, the device has 8.0; "
        "float8_e5m2 is served"
    )
    assert [refusal(*served) for served in ((80, e5m2), (89, e4m3), (90, e4m3))] == [None] * 3
    assert refusal(75, None) == "needs compute capability 8.0, the device has 7.5"
    assert refusal(90, torch.float16) == (
        "a cache of torch.float16 beside activations of torch.bfloat16 is not served"
    )
