"""Every rope kind against transformers, far beyond the original length (B48)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pagedd.errors import ModelError
from pagedd.models.config import read_spec
from pagedd.models.rope import Rope, attention_factor, inverse_frequencies
from tests.models.paged import Paged, difference, load, run, tokens_of
from tests.tiny.models import build, edit_config

ORIGINAL = 32  # tokens; positions go to three times this
LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
LONGROPE = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.5 * i for i in range(8)],
    "original_max_position_embeddings": ORIGINAL,
}
# name → (rope dictionary, effective length)
ROPES: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({"rope_type": "default"}, ORIGINAL),
    "linear": ({"rope_type": "linear", "factor": 4.0}, 4 * ORIGINAL),
    "dynamic": ({"rope_type": "dynamic", "factor": 4.0}, 4 * ORIGINAL),
    "llama3-8": ({**LLAMA3, "factor": 8.0}, 8 * ORIGINAL),
    "llama3-32": ({**LLAMA3, "factor": 32.0}, 32 * ORIGINAL),
    "yarn": (YARN, 4 * ORIGINAL),
    "yarn-attention-factor": ({**YARN, "attention_factor": 1.0}, 4 * ORIGINAL),
    "yarn-mscale-equal": ({**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}, 4 * ORIGINAL),
    "yarn-mscale": ({**YARN, "mscale": 1.0, "mscale_all_dim": 0.4}, 4 * ORIGINAL),
    "yarn-not-truncated": ({**YARN, "truncate": False, "beta_fast": 8.0}, 4 * ORIGINAL),
    "longrope": (LONGROPE, 4 * ORIGINAL),
    "longrope-attention-factor": ({**LONGROPE, "attention_factor": 1.3}, 4 * ORIGINAL),
    "proportional": ({"rope_type": "proportional", "factor": 2.0}, ORIGINAL),
    "proportional-half": (
        {"rope_type": "proportional", "factor": 1.0, "partial_rotary_factor": 0.5},
        ORIGINAL,
    ),
}


def _checkpoint(folder: Path, rope: dict[str, Any], *, layout: str) -> Path:
    """A tiny Llama whose config says ``rope`` in the old or in the new layout."""
    build("llama", folder, max_position_embeddings=ORIGINAL)
    if layout == "new":
        return edit_config(folder, rope_parameters={**rope, "rope_theta": 5000.0})
    return edit_config(folder, drop=["rope_parameters"], rope_scaling=rope, rope_theta=5000.0)


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("prompt_len", [20, 70])
def test_logits_to_three_times_the_length(name: str, prompt_len: int, tmp_path: Path) -> None:
    layout = "new" if prompt_len == 20 else "old"
    folder = _checkpoint(tmp_path, ROPES[name][0], layout=layout)
    tokens = tokens_of(8, 3 * ORIGINAL + 4)
    assert difference(folder, tokens, prompt_len=prompt_len, chunk=16) < 1e-4


@pytest.mark.parametrize("name", ROPES)
def test_both_layouts_and_both_keys_give_one_spec(name: str, tmp_path: Path) -> None:
    rope, length = ROPES[name]
    spec = read_spec(_checkpoint(tmp_path / "new", rope, layout="new"), "x")
    assert spec.max_position == length
    assert spec.rope.theta == 5000.0
    assert spec.rope.kind == rope["rope_type"]
    legacy = {("type" if key == "rope_type" else key): value for key, value in rope.items()}
    for number, variant in enumerate((rope, legacy, {**legacy, **rope})):
        folder = _checkpoint(tmp_path / f"old{number}", variant, layout="old")
        assert read_spec(folder, "x").rope == spec.rope


@pytest.mark.parametrize("name", [name for name in ROPES if name != "default"])
def test_frequencies_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path, ROPES[name][0], layout="new")
    spec = read_spec(folder, "x").rope
    config = AutoConfig.from_pretrained(folder)
    expected, factor = ROPE_INIT_FUNCTIONS[spec.kind](config)
    torch.testing.assert_close(inverse_frequencies(spec), expected, rtol=1e-6, atol=0)
    assert attention_factor(spec) == pytest.approx(factor, rel=1e-12)


def test_dynamic_and_longrope_alone_depend_on_the_length(tmp_path: Path) -> None:
    position = torch.tensor([5])
    for name, (rope, _) in ROPES.items():
        spec = read_spec(_checkpoint(tmp_path / name, rope, layout="new"), "x").rope
        rows = Rope(spec, torch.device("cpu"))
        short = rows.rows(position, torch.tensor([6]))
        long = rows.rows(position, torch.tensor([3 * ORIGINAL]))
        assert short.equal(long) != spec.length_dependent, name


def test_chunks_of_a_long_prompt_know_its_whole_length(tmp_path: Path) -> None:
    """Otherwise the keys of the first chunk would be those of a short prompt."""
    folder = _checkpoint(tmp_path, ROPES["dynamic"][0], layout="new")
    tokens = tokens_of(9, 90)
    whole = run(Paged(load(folder)), tokens, prompt_len=90, chunk=90)
    for chunk in (1, 7, 40):
        chunked = run(Paged(load(folder)), tokens, prompt_len=90, chunk=chunk)
        assert (whole - chunked).abs().max() < 1e-4


def test_missing_theta_is_the_default_of_the_family(tmp_path: Path) -> None:
    for kind in ("llama", "qwen3", "smollm3"):
        folder = build(kind, tmp_path / kind)
        edit_config(folder, drop=["rope_parameters"])
        reference = AutoConfig.from_pretrained(folder).rope_parameters["rope_theta"]
        assert read_spec(folder, "x").rope.theta == reference
        assert difference(folder, tokens_of(3, 30), prompt_len=10, chunk=10) < 1e-4


def test_lengths_left_out_are_taken_from_the_config(tmp_path: Path) -> None:
    build("llama", tmp_path, max_position_embeddings=128)
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert read_spec(edit_config(tmp_path, rope_parameters=yarn), "x").max_position == 512
    extended = {**yarn, "factor": None, "original_max_position_embeddings": 32}
    spec = read_spec(edit_config(tmp_path, rope_parameters=extended), "x")
    assert (spec.rope.factor, spec.max_position) == (4.0, 128)
    llama3 = {**LLAMA3, "factor": 8.0}
    assert read_spec(edit_config(tmp_path, rope_parameters=llama3), "x").max_position == 128
    top = edit_config(tmp_path, rope_parameters=yarn, original_max_position_embeddings=64)
    assert read_spec(top, "x").rope.original_max_position == 64


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_scaling": {"type": "su", "factor": 2.0}}, "unknown rope_type 'su'"),
        ({"rope_scaling": {"type": "mrope", "rope_type": "default"}}, "contradict"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor is 0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "factor is '2'"),
        ({"rope_scaling": {"factor": 2.0}}, "unsupported setting factor"),
        ({"rope_scaling": {**YARN, "mrope_section": [4, 2, 2]}}, "mrope_section"),
        ({"rope_scaling": {**LLAMA3, "factor": 8, "high_freq_factor": 1.0}}, "high_freq_factor"),
        ({"rope_scaling": {**LONGROPE, "long_factor": [1.0]}}, "long_factor"),
        ({"rope_scaling": YARN, "rope_parameters": {"rope_type": "default"}}, "contradict"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": [1]}, "rope_scaling is [1]"),
        ({"rope_theta": float("nan")}, "rope_theta"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    folder = edit_config(build("llama", tmp_path), drop=["rope_parameters"], **changes)
    with pytest.raises(ModelError) as caught:
        read_spec(folder, "x")
    assert named in caught.value.message
    assert "\n" not in caught.value.message
