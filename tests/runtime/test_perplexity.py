"""Losses through the paged model are those of transformers, and each token counts once."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedd.bench.perplexity import table
from pagedd.cli.main import main
from pagedd.errors import UsageError
from pagedd.runtime.bench_perplexity import FORMS, measure
from pagedd.runtime.perplexity import compare, spans, token_losses
from tests.models.paged import load, reference_model, tokens_of
from tests.tiny.models import build


@given(st.integers(2, 2000), st.integers(1, 300), st.integers(1, 200))
def test_each_token_but_the_first_counts_once_after_enough_others(
    count: int, stride: int, overlap: int
) -> None:
    window = stride + overlap
    found = list(spans(count, window, stride))
    assert [span.first for span in found] == [1, *(span.end for span in found[:-1])]
    assert found[-1].end == count
    for span in found:
        assert span.begin < span.first < span.end <= span.begin + window
        assert span.first - span.begin >= min(overlap, span.first)


@pytest.mark.parametrize("front", [(), (297,)])
def test_losses_are_those_of_transformers(tmp_path: Path, front: tuple[int, ...]) -> None:
    folder = build("llama", tmp_path)
    ids = tokens_of(4, 300)
    found = token_losses(load(folder), ids, front, window=280, stride=200)
    model, expected = reference_model(folder), []
    for begin, first, end in spans(300, 280, 200):
        with torch.inference_mode():
            logits = model(torch.tensor([[*front, *ids[begin:end]]])).logits[0, len(front) :]
        targets = torch.tensor(ids[begin + 1 : end])
        lost = torch.nn.functional.cross_entropy(logits[:-1].double(), targets, reduction="none")
        expected.append(lost[first - begin - 1 :])
    assert found.shape == (299,)
    assert (found - torch.cat(expected)).abs().max() < 1e-4


def test_a_comparison_is_made_token_by_token() -> None:
    reference = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    same = compare(reference, reference)
    assert same.perplexity == pytest.approx(math.exp(3.0))
    assert same[1:] == (0.0, 0.0, 0.0)
    worse = compare(reference + 0.01, reference)
    assert worse.change == pytest.approx(math.exp(0.01) - 1)
    assert worse.error == pytest.approx(0.0, abs=1e-12)  # every token is worse by as much
    assert worse.most == pytest.approx(0.01)


def test_the_command_prints_a_row_for_each_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build("llama", tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("It was a truth universally acknowledged, that pages come and go. " * 5)
    code = main(
        ["bench", "perplexity", f"--model={folder}", f"--text={text}", "--device=cpu", "--json=-"]
    )
    assert code == 0
    result = json.loads(capsys.readouterr().out)
    assert [(row["dtype"], row["weights"]) for row in result["rows"]] == list(FORMS)
    assert result["rows"][1]["perplexity"] == result["rows"][2]["perplexity"]
    assert result["rows"][3]["bytes"] < result["rows"][2]["bytes"] < result["rows"][0]["bytes"]
    lines = table(result)
    assert len(lines) == 3 + len(FORMS)
    assert "std. error" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs a text: --text FILE"),
        (["--text=x", "--weights=int8"], "--weights means nothing to"),
        (["--text=x", "--concurrency=2"], "--concurrency goes with load"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    folder = build("llama", tmp_path)
    assert main(["bench", "perplexity", f"--model={folder}", *arguments]) != 0
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "text: cannot be read: No such file"),
        (b"caf\xe9", "text: cannot be read: it is not UTF-8"),
        (b"", "text: has fewer than 3 tokens"),
    ],
)
def test_a_text_that_cannot_be_measured(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    text = tmp_path / "text"
    if content is not None:
        text.write_bytes(content)
    job = {"model": str(build("llama", tmp_path / "model")), "text": str(text)}
    with pytest.raises(UsageError, match=message):
        measure(job, lambda fraction, what: None)
