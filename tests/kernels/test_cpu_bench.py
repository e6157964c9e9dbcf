"""The attention bench: what it compares, in which order, over what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pagedd_kernels.cpu import bench
from pagedd_kernels.cpu.backend import CpuBackend
from pagedd_kernels.cpu.bench_case import filled_memory

SHAPE = bench.Shape("small", 4, 2, 64)


def test_what_is_compared_takes_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    first, second = bench.in_turns([lambda: order.append("a"), lambda: order.append("b")], 3)
    assert order == ["a", "b"] * 4
    assert first >= 0 <= second


def test_a_case_is_as_large_as_was_asked_for_or_one_layer() -> None:
    assert SHAPE.numbers_per_token == 2 * 2 * 64
    token = 2 * SHAPE.numbers_per_token  # bytes
    assert bench.layers_for(SHAPE, 2, 64, 5 * 128 * token) == 5
    assert bench.layers_for(SHAPE, 2, 64, 1) == 1


def test_the_three_kinds_of_page_tables_hold_the_same_tokens() -> None:
    """So the results agree once the cache's content does not depend on where it lies."""
    backend = CpuBackend(1)
    memory = filled_memory(2 * 128 * SHAPE.numbers_per_token)
    outs = []
    for size, scattered in ((128, False), (32, False), (32, True)):
        case = bench.Case(SHAPE, memory, 2, 128, size, scattered=scattered)
        table = case.inputs.page_table.flatten().tolist()
        assert sorted(table) == list(range(2 * 128 // size))
        assert (table != sorted(table)) == scattered
        positions = torch.arange(128, dtype=torch.bfloat16).view(1, -1, 1) / 128
        for sequence in range(2):
            for logical, page in enumerate(case.inputs.page_table[sequence].tolist()):
                held = positions[:, logical * size : (logical + 1) * size] + sequence
                case.cache[page, 0] = held
        outs.append(
            backend.paged_attention(case.q, case.cache, 0, case.inputs, scale=case.scale).clone()
        )
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])


def test_the_figures_are_printed_and_written() -> None:
    backend = CpuBackend(1)
    read = bench.measure_read(backend, SHAPE, 2, 64, 1, 1 << 16)
    paged = bench.measure_paged(backend, SHAPE, 2, 64, 32, 1, 1 << 16)
    assert read.attention_gb_s > 0 < read.read_gb_s
    lines = bench.table([read], [paged])
    assert f"{read.share:.0%}" in lines[1]
    assert f"{paged.overhead:.1%}" in lines[-1]
    assert f"{paged.overhead_of_order:.1%}" in lines[-1]


def test_the_command_measures_the_page_sizes_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    arguments = ["--rounds", "1", "--mib", "1", "--page-size", "16", "--page-size", "64"]
    assert bench.main([*arguments, "--json", str(file)]) == 0
    assert "page tables" in capsys.readouterr().out
    figures = json.loads(file.read_text())
    assert {case["page_size"] for case in figures["paged"]} == {16, 64}
    assert len(figures["read"]) == len(bench.SHAPES) * len(bench.READ_CASES)
    with pytest.raises(SystemExit):
        bench.main(["--page-size", "48"])
