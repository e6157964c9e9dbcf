"""The ahead-of-time check of the Triton kernels: its cases, its limits, and that it can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from pagedd_kernels.triton_ import gate, variants
from pagedd_kernels.triton_.attention_launch import paged_attention
from pagedd_kernels.triton_.compile_cache import cache_folder
from pagedd_kernels.triton_.compiled import INSTRUCTIONS, Usage, UsageCache, kinds
from pagedd_kernels.triton_.kv_write import kv_write
from pagedd_kernels.triton_.page_moves import page_copy
from pagedd_kernels.triton_.tuning import ARCHITECTURES, TABLE, decode_splits
from tests.kernels.batches import Shape, make_batch, make_rope

HERE = Path(__file__).parent
USAGE = Usage(100, 20000, 0, 0, ("cp.async", "ldmatrix", "mma.sync", "wgmma", "tcgen05", "ld.128"))


def compiling(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the interpreter, whatever this process has."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_row_of_the_table_and_every_operation_is_compiled() -> None:
    cases = gate.cases()
    for row in TABLE:
        assert list(gate.of_row(row)), row  # raises if another row hides this one
    operations = {
        *("kv_write", "rms_norm", "add_rms_norm", "silu_mul", "sample", "merge", "decode"),
        *("page_copy", "page_gather", "page_scatter", "prefill"),
    }
    for architecture in ARCHITECTURES:
        names = {case.name.split()[0] for case in cases if case.architecture == architecture}
        assert names == operations
    twice = Counter((case.architecture, case.launch.key()) for case in cases)
    assert [key for key, count in twice.items() if count > 1] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"stack": 8}, ["8 bytes of stack"]),
        ({"spills": 3}, ["3 spills"]),
        ({"registers": 171}, ["171 registers, 170 allowed"]),
        ({"shared": 80000}, ["80000 bytes shared, 76800 allowed"]),
        ({"instructions": ("ld.128", "cp.async")}, ["no mma.sync"]),
    ],
)
def test_what_exceeds_a_limit_is_said(change: dict[str, int], words: list[str]) -> None:
    case = next(case for case in gate.cases() if case.architecture == 90)
    assert case.name == "decode split bf16 d64 g4"
    assert case.faults(replace(USAGE, **change)) == words


def test_instructions_are_told_by_their_kind() -> None:
    code = """
        /*0010*/ LDGSTS.E.BYPASS.128 [R2], [R4.64] ;   /*0020*/ LDSM.16.M88.4 R8, [R9] ;
        /*0030*/ HMMA.16816.F32.BF16 R4, R8, R12, R4 ; /*0040*/ LDG.E.128 R4, [R2.64] ;
    """
    assert kinds(code, INSTRUCTIONS) == ("cp.async", "ldmatrix", "mma.sync", "ld.128")
    assert kinds("HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4]", INSTRUCTIONS) == ("wgmma",)
    assert kinds("UTCHMMA gdesc[UR4], gdesc[UR6]", INSTRUCTIONS) == ("tcgen05",)


def test_what_was_measured_is_kept_until_the_kernel_changes(tmp_path: Path) -> None:
    cache = UsageCache(tmp_path / "usage")
    launch = gate.cases()[0].launch
    assert cache.find(launch, 80) is None
    cache.keep(launch, 80, USAGE)
    assert cache.find(launch, 80) == USAGE
    assert cache.find(launch, 90) is None
    assert cache.find(replace(launch, num_warps=8), 80) is None
    [file] = (tmp_path / "usage").iterdir()
    file.write_text('{"registers": 1')
    assert cache.find(launch, 80) is None


def test_compiled_kernels_are_kept_in_the_users_cache(tmp_path: Path) -> None:
    assert cache_folder({"TRITON_CACHE_DIR": "/elsewhere"}) == Path("/elsewhere")
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "pagedd" / "triton"
    assert cache_folder({"XDG_CACHE_HOME": "not/absolute"}) == Path.home() / ".cache/pagedd/triton"


@pytest.mark.parametrize("window", [0, 6])
@pytest.mark.parametrize("fp8", [None, torch.float8_e5m2])
def test_a_warm_up_compiles_what_batches_launch(window: int, fp8: torch.dtype | None) -> None:
    geometry = Shape(group=3, head_dim=80, page_size=8, dtype=torch.bfloat16, fp8=fp8)
    processors = 20
    shape = replace(
        gate.TYPICAL,
        num_layers=2,
        num_heads=geometry.heads,
        num_kv_heads=geometry.kv_heads,
        head_dim=80,
        rope_dim=80,
        page_size=8,
        max_num_seqs=12,
        max_model_len=600,
        windows=frozenset({window}),
        cache_dtype=fp8 or torch.bfloat16,
    )
    compiled = {launch.key() for _, launch in variants.of_model(shape, 90, processors)}
    batches = [((1, 500),), ((1, 1),) * 12, ((1, 9), (2, 5), (7, 7)), ((100, 300), (20, 20))]
    for sequences in batches:
        batch = make_batch(geometry, sequences)
        programs = batch.inputs.num_decode * geometry.kv_heads
        launches, _ = paged_attention(
            batch.queries(),
            batch.cache,
            1,
            batch.inputs,
            scale=0.1,
            window=window,
            architecture=90,
            splits=decode_splits(programs, processors, window or batch.inputs.max_seq_len),
        )
        rope = make_rope(batch, 80)
        write, _ = kv_write(batch.qkv, batch.cache, 1, batch.inputs, rope, None, None, 1e-5)
        copy = page_copy(batch.cache, batch.cache, torch.tensor([[0, 1]]))
        for launch in (*launches, write, copy):
            assert launch.key() in compiled, launch.kernel


@pytest.mark.slow
def test_every_variant_stays_within_its_limits() -> None:
    run = compiling("-m", "pagedd_kernels.aot", "--json")
    assert run.returncode in (0, 1), run.stderr[-4000:]
    found = json.loads(run.stdout)
    assert len(found) == len(gate.cases())
    assert [variant for variant in found if variant["faults"]] == []


@pytest.mark.slow
def test_a_kernel_that_spills_fails_the_check() -> None:
    run = compiling("-m", "tests.kernels.spilling", "--json")
    assert run.returncode == 1, run.stderr[-4000:]
    [variant] = json.loads(run.stdout)
    assert variant["spills"] > 0
    assert variant["stack"] > 0
    assert f"{variant['spills']} spills" in variant["faults"]
