"""``--weights``: what becomes narrow, and that nothing but its rounding shows in the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagedd.errors import UsageError
from pagedd.models.decoder import Decoder
from pagedd.models.embedding import Embedding
from pagedd.models.gguf import GgufWeights
from pagedd.models.load import LoadedModel
from pagedd.models.quantize import quantize
from pagedd.models.spec import EMBEDDING, OUTPUT
from pagedd.models.weights import SafetensorsWeights
from pagedd_kernels.reference import TorchBackend
from tests.models.gguf_writer import QType, write_checkpoint
from tests.models.paged import Held, Paged, load, reference, reference_model, run, tokens_of
from tests.tiny.models import build

FILE = "model.safetensors"
TOLERANCE = 1e-4
FORMS = ("auto", "dense")
TOKENS = tokens_of(3, 40)


def logits_of(model: Path, **options: Any) -> Tensor:
    return run(Paged(load(model, **options)), TOKENS, prompt_len=30, chunk=13)


def greedy(loaded: LoadedModel, count: int, prompts: list[list[int]]) -> list[list[int]]:
    """Texts of ``prompts`` in one batch, each with ``count`` more tokens."""
    paged = Paged(loaded)
    texts = [list(prompt) for prompt in prompts]
    held = [Held(prompt_len=len(prompt)) for prompt in prompts]
    pending = [list(prompt) for prompt in prompts]
    for _ in range(count):
        found = paged.step(list(zip(held, pending, strict=True)))
        pending = [[int(logits[-1].argmax())] for logits in found]
        for text, new in zip(texts, pending, strict=True):
            text += new
    return texts


def as_folder(path: Path, folder: Path) -> Path:
    """The values of a GGUF file as the checkpoint in ``folder``, in float32."""
    weights = GgufWeights(path, torch.float32)
    tensors = {name: weights.get(name).contiguous() for name in weights.names()}
    save_file(tensors, folder / FILE, {"format": "pt"})
    return folder


@pytest.mark.parametrize("qtype", [QType.Q4_1, QType.Q8_0], ids=lambda q: q.name)
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_in_float32_a_quantised_file_equals_transformers(
    tmp_path: Path, kind: str, qtype: QType
) -> None:
    folder = build(kind, tmp_path / "folder")
    path = write_checkpoint(folder, tmp_path / "m.gguf", qtype)
    expected = reference(reference_model(as_folder(path, folder)), TOKENS, prompt_len=30)
    assert (logits_of(path) - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("qtype", [QType.Q4_0, QType.Q5_1, QType.Q8_0], ids=lambda q: q.name)
@pytest.mark.parametrize("kind", ["llama", "smollm3"])  # smollm3: tied embeddings
def test_auto_gives_the_bits_of_dense(tmp_path: Path, kind: str, qtype: QType, dtype: str) -> None:
    path = write_checkpoint(build(kind, tmp_path / "folder"), tmp_path / "m.gguf", qtype)
    dense = logits_of(path, dtype=dtype, weights="dense")
    assert torch.equal(logits_of(path, dtype=dtype, weights="auto"), dense)


def test_auto_and_dense_give_the_same_text(tmp_path: Path) -> None:
    path = write_checkpoint(build("llama", tmp_path / "f"), tmp_path / "m.gguf", QType.Q4_1)
    prompts = [tokens_of(1, 5)]
    texts = [greedy(load(path, dtype="bfloat16", weights=form), 24, prompts) for form in FORMS]
    assert texts[0] == texts[1]


def rounded(name: str, values: Tensor, bits: int) -> Tensor:
    if values.ndim != 2:
        return values
    wide = name in (EMBEDDING, OUTPUT) or name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")
    return quantize(values, 8 if wide else bits, values.dtype).dequantize()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["qwen2", "smollm3"])
def test_on_request_matrices_are_rounded_and_nothing_else(
    tmp_path: Path, kind: str, bits: int
) -> None:
    folder = build(kind, tmp_path)
    found = logits_of(folder, weights=f"int{bits}")
    plain = logits_of(folder)
    tensors = load_file(folder / FILE)
    changed = {name: rounded(name, values, bits) for name, values in tensors.items()}
    save_file(changed, folder / FILE, {"format": "pt"})
    assert torch.equal(found, logits_of(folder))
    assert not torch.equal(found, plain)


def test_what_is_narrow_already_stays(tmp_path: Path) -> None:
    folder = build("llama", tmp_path / "folder")
    four = write_checkpoint(folder, tmp_path / "4.gguf", QType.Q4_1)
    eight = write_checkpoint(folder, tmp_path / "8.gguf", QType.Q8_0)
    for form in ("int8", "int4"):
        assert torch.equal(logits_of(four, weights=form), logits_of(four))
    assert torch.equal(logits_of(eight, weights="int8"), logits_of(eight))
    assert not torch.equal(logits_of(eight, weights="int4"), logits_of(eight))


def test_floats_of_a_gguf_file_are_rounded_from_what_it_holds(tmp_path: Path) -> None:
    """And not from what the activations' dtype makes of them."""
    folder = build("qwen2", tmp_path / "folder")
    path = write_checkpoint(folder, tmp_path / "m.gguf", QType.F32)
    options = {"weights": "int8", "dtype": "bfloat16"}
    assert torch.equal(logits_of(path, **options), logits_of(folder, **options))


def test_matrices_of_another_width_stay_dense(tmp_path: Path) -> None:
    sizes = {"hidden_size": 48, "intermediate_size": 72, "head_dim": 12}
    folder = build("llama", tmp_path, **sizes)
    assert torch.equal(logits_of(folder, weights="int4"), logits_of(folder))


def test_parts_of_one_matrix_in_several_types(tmp_path: Path) -> None:
    """q and k in blocks, v in float: the fused matrix is dense."""
    folder = build("llama", tmp_path / "folder")
    whole = write_checkpoint(folder, tmp_path / "m.gguf", QType.Q4_0)
    weights = GgufWeights(whole, torch.float32)
    mixed = _Mixed(weights)
    for name in weights.names():
        same = mixed.matrix(name, torch.float32)
        assert isinstance(same, Tensor) == (weights.get(name).ndim == 1 or "v_proj" in name)
    loaded = load(whole)
    model = Decoder(loaded.spec, mixed, loaded.backend, loaded.device)
    ids = torch.tensor(TOKENS)
    assert torch.equal(model.embedding(ids), loaded.model.embedding(ids))
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    for found, expected in zip(model.layers, loaded.model.layers, strict=True):
        assert torch.equal(found.qkv(x), expected.qkv(x))


class _Mixed:
    """A GGUF file whose values of attention are floats."""

    def __init__(self, weights: GgufWeights) -> None:
        self.names, self.shape, self.get = weights.names, weights.shape, weights.get
        self._weights = weights

    def matrix(self, name: str, dtype: torch.dtype) -> Any:
        return self.get(name) if "v_proj" in name else self._weights.matrix(name, dtype)


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_a_text_is_the_same_alone_and_in_a_batch(tmp_path: Path, form: str) -> None:
    loaded = load(build("llama", tmp_path), weights=form, dtype="bfloat16")
    prompts = [tokens_of(seed, 9) for seed in range(5)]
    together = greedy(loaded, 20, prompts)
    assert together == [greedy(loaded, 20, [prompt])[0] for prompt in prompts]
    assert len({tuple(text[9:]) for text in together}) > 1


@pytest.mark.parametrize("bits", [4, 8])
def test_the_embedding_keeps_its_narrow_form(bits: int) -> None:
    matrix = quantize(torch.randn(40, 64), bits, torch.bfloat16)
    embedding = Embedding(matrix)
    ids = torch.tensor([3, 0, 39, 3])
    assert torch.equal(embedding(ids), matrix.dequantize()[ids])
    assert sum(part.nbytes for part in embedding.tensors) == 40 * 64 * bits // 8 + 40 * 2 * 4


def test_a_tied_matrix_that_is_kept_once_counts_once(tmp_path: Path) -> None:
    folder = build("smollm3", tmp_path)
    spec = load(folder).spec
    model = Decoder(spec, SafetensorsWeights(folder), TorchBackend(), torch.device("cpu"))
    stored = load_file(folder / FILE)
    assert model.weight_bytes == sum(values.nbytes for values in stored.values())


def test_unknown_forms_and_contradictions_are_refused(tmp_path: Path) -> None:
    folder = build("llama", tmp_path)
    with pytest.raises(UsageError, match="weights 'fp8' is unknown: auto, dense, int8, int4"):
        load(folder, weights="fp8")
    with pytest.raises(UsageError, match="--weights bf16 contradicts --dtype float32"):
        load(folder, weights="bf16", dtype="float32")
    loaded = load(folder, weights="bf16", dtype="auto")
    assert loaded.form == "dense"
    assert loaded.spec.dtype is torch.bfloat16
    assert loaded.note.startswith("weights: 0.00 GiB")
