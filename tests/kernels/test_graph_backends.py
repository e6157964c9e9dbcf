"""The contract of a ``GraphBackend`` against the reference, and of the reference against itself.

Run in Triton's interpreter by ``test_triton.py``, and on a device with ``-m gpu``.
"""

from __future__ import annotations

import math

import pytest
import torch

from pagedd_kernels.backend import BACKENDS, select_backend
from pagedd_kernels.graph_backend import GraphBackend
from pagedd_kernels.inputs import SamplingInputs
from pagedd_kernels.reference import TorchBackend
from tests.kernels.batches import LAYER, SCALES, Shape, make_batch

REFERENCE = TorchBackend()
MIXED = ((1, 9), (1, 1), (5, 8))
PAIRS = [  # activations, cache in 8 bits
    (torch.bfloat16, torch.float8_e4m3fn),
    (torch.float16, torch.float8_e5m2),
    (torch.float32, torch.float8_e4m3fn),
]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def serving(name: str) -> list[torch.device]:
    """The devices on which a backend can be tested here."""
    loaded = next(entry for entry in BACKENDS if entry.name == name).load()
    devices = [CPU, CUDA] if torch.cuda.is_available() else [CPU]
    if isinstance(loaded, str):
        return []
    return [device for device in devices if loaded.unavailable(device, torch.float32) is None]


Served = tuple[GraphBackend, torch.device]


@pytest.fixture(
    params=[
        pytest.param(
            (name, device),
            id=f"{name}-{device}",
            marks=[pytest.mark.gpu] if device.type == "cuda" else [],
        )
        for name in ("triton", "torch")
        for device in serving(name)
    ]
)
def served(request: pytest.FixtureRequest) -> Served:
    name, device = request.param
    backend = select_backend(device, torch.float32, name).backend
    assert isinstance(backend, GraphBackend)
    return backend, device


@pytest.mark.parametrize("window", [0, 5])
def test_the_log_sum_exp_of_each_row(served: Served, window: int) -> None:
    backend, device = served
    batch = make_batch(Shape(group=3).on(str(device), torch.float32), MIXED)
    q = batch.queries()
    lse = torch.full(q.shape[:2], 3.0, device=device)
    out = torch.full((q.shape[0], q.shape[1] * q.shape[2]), 3.0, device=device)
    arguments = (q, batch.cache, LAYER, batch.inputs)
    given = backend.paged_attention(*arguments, scale=0.3, window=window, out=out, lse=lse)
    assert given.data_ptr() == out.data_ptr()
    torch.testing.assert_close(
        out, REFERENCE.paged_attention(*arguments, scale=0.3, window=window), rtol=2e-5, atol=2e-5
    )
    for sequence, (rows, length) in enumerate(MIXED):
        keys = batch.history(sequence, 0).repeat_interleave(3, dim=1)
        first = int(batch.inputs.cu_seqlens[sequence])
        for row in range(rows):
            last = length - rows + row + 1
            seen = keys[max(0, last - window) if window else 0 : last]
            scores = torch.einsum("hd,khd->hk", q[first + row], seen) * 0.3
            torch.testing.assert_close(lse[first + row], scores.logsumexp(1), rtol=2e-5, atol=2e-5)


def test_the_log_sum_exp_without_keys_is_minus_infinity(served: Served) -> None:
    backend, device = served
    batch = make_batch(Shape().on(str(device), torch.float32), ((1, 3), (1, 5)))
    batch.inputs.seq_lens[1] = 0
    lse = torch.zeros(2, batch.shape.heads, device=device)
    arguments = (batch.queries(), batch.cache, LAYER, batch.inputs)
    backend.paged_attention(*arguments, scale=0.3, lse=lse)
    assert lse[0].isfinite().all()
    assert lse[1].eq(-math.inf).all()


def test_attention_in_two_parts_merges_to_the_whole(served: Served) -> None:
    """What the log-sum-exp is for: a shared prefix, computed apart."""
    backend, device = served
    batch = make_batch(Shape(page_size=4).on(str(device), torch.float32), ((1, 11),))
    arguments = (batch.queries(), batch.cache, LAYER)
    whole = REFERENCE.paged_attention(*arguments, batch.inputs, scale=0.3)
    parts = []
    for length, table in ((8, batch.inputs.page_table), (3, batch.inputs.page_table[:, 2:])):
        shorter = make_batch(batch.shape, ((1, length),)).inputs
        shorter.page_table.copy_(table[:, : shorter.page_table.shape[1]])
        lse = torch.empty(1, batch.shape.heads, device=device)
        out = backend.paged_attention(*arguments, shorter, scale=0.3, lse=lse)
        parts.append((out.view(batch.shape.heads, -1), lse[0]))
    (first, a), (second, b) = parts
    share = torch.sigmoid(a - b)[:, None]
    torch.testing.assert_close(first * share + second * (1 - share), whole.view_as(first))


@pytest.mark.parametrize(("dtype", "fp8"), PAIRS, ids=str)
def test_attention_over_a_cache_in_8_bits(
    served: Served, dtype: torch.dtype, fp8: torch.dtype
) -> None:
    backend, device = served
    shape = Shape(group=4, head_dim=80, page_size=7, fp8=fp8).on(str(device), dtype)
    batch = make_batch(shape, MIXED)
    out = backend.paged_attention(batch.queries(), batch.cache, LAYER, batch.inputs, scale=0.2)
    scales = torch.tensor(SCALES[LAYER], device=device).view(2, 1, 1, 1)
    plain = batch.cache[:, LAYER].float() * scales  # what the cache stands for
    expected = REFERENCE.paged_attention(
        batch.queries().float(), plain[:, None], 0, batch.inputs, scale=0.2
    )
    assert out.dtype == dtype
    bound = 2e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(out.float(), expected, rtol=bound, atol=bound)


def representable(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Random numbers of an 8-bit dtype that also have a quarter there, as float32."""
    values = (8 * torch.randn(shape)).to(dtype).float()
    return values.where(values.abs() > 0.25, 1.0)


@pytest.mark.parametrize(("dtype", "fp8"), PAIRS, ids=str)
def test_kv_write_into_a_cache_in_8_bits(
    served: Served, dtype: torch.dtype, fp8: torch.dtype
) -> None:
    """With numbers that need no rounding: Triton's interpreter loses the carry of one."""
    backend, device = served
    torch.manual_seed(0)
    shape = Shape(head_dim=24, fp8=fp8).on(str(device), dtype)
    batch = make_batch(shape, ((1, 7), (2, 2), (2, 3)))
    batch.inputs.kv_scales[LAYER] = torch.tensor([0.5, 4.0])
    batch.inputs.slots[1] = -1
    batch.qkv.copy_(representable(*batch.qkv.shape, dtype=fp8))
    batch.qkv[0, -1] = -24576.0 if dtype == torch.float16 else -1e6  # saturates
    other = batch.clone()
    for writer, of in ((backend, batch), (REFERENCE, other)):
        options = {"rope": None, "q_norm": None, "k_norm": None, "eps": 0.0}
        writer.kv_write(of.qkv, of.cache, LAYER, of.inputs, **options)
    assert torch.equal(batch.cache.float().nan_to_num(9), other.cache.float().nan_to_num(9))
    page, offset = divmod(int(batch.inputs.slots[0]), batch.shape.page_size)
    written = batch.cache[page, LAYER, :, :, offset].float()
    keys_and_values = batch.qkv[0].view(-1, 24)[batch.shape.heads :].view(2, 2, 24).float()
    scales = torch.tensor([0.5, 4.0], device=device).view(2, 1, 1)
    most = torch.finfo(fp8).max
    assert torch.equal(written, (keys_and_values / scales).clamp(-most, most))
    assert dtype == torch.float16 or written[1, 1, -1] == -most


def test_a_cache_in_8_bits_without_scales_has_scale_1(served: Served) -> None:
    backend, device = served
    batch = make_batch(Shape(head_dim=16).on(str(device), torch.float32), ((2, 5),))
    cache = torch.zeros_like(batch.cache, dtype=torch.float8_e5m2)
    batch.qkv.copy_(representable(*batch.qkv.shape, dtype=cache.dtype))
    options = {"rope": None, "q_norm": None, "k_norm": None, "eps": 0.0}
    backend.kv_write(batch.qkv, cache, LAYER, batch.inputs, **options)
    page, offset = divmod(int(batch.inputs.slots[0]), batch.shape.page_size)
    keys_and_values = batch.qkv[0].view(-1, 16)[batch.shape.heads :]
    assert torch.equal(cache[page, LAYER, :, :, offset].flatten(0, 1).float(), keys_and_values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2], ids=str)
def test_pages_gathered_and_scattered(served: Served, dtype: torch.dtype) -> None:
    backend, device = served
    cache = torch.randn(6, 2, 2, 1, 5, 24, device=device).to(dtype)
    pages = torch.tensor([4, -1, 0, 2], device=device)
    staging = torch.zeros(5, *cache.shape[1:], device=device).to(dtype)
    backend.page_gather(cache, pages, staging)
    for i, page in enumerate((4, None, 0, 2, None)):
        expected = torch.zeros_like(cache[0]) if page is None else cache[page]
        assert torch.equal(staging[i].float(), expected.float())
    back = torch.zeros_like(cache)
    backend.page_scatter(staging, pages, back)
    for page in range(6):
        expected = cache[page] if page in (0, 2, 4) else torch.zeros_like(cache[0])
        assert torch.equal(back[page].float(), expected.float())


def test_a_padding_pair_copies_nothing(served: Served) -> None:
    backend, device = served
    cache = torch.randn(4, 2, 2, 1, 4, 16, device=device)
    before = cache.clone()
    pairs = torch.tensor([[-1, 0], [3, 1], [2, -1]], device=device)
    backend.page_copy(cache, cache, pairs)
    before[1] = before[3]
    assert torch.equal(cache, before)


def drawing(device: torch.device, rows: int, **given: float) -> SamplingInputs:
    """``rows`` draws of one stream each, with the same parameters."""

    def each(name: str, default: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((rows,), given.get(name, default), dtype=dtype, device=device)

    return SamplingInputs(
        inverse_temperature=each("inverse_temperature", 1.0, torch.float32),
        top_k=each("top_k", 0, torch.int32),
        top_p=each("top_p", 1.0, torch.float32),
        min_p=each("min_p", 0.0, torch.float32),
        keys=torch.arange(rows, device=device) * 0x5851F42D4C957F2D,
        counters=torch.arange(rows, device=device) + 7,
    )


FILTERS = [
    {"top_k": 20, "top_p": 0.8},
    {"inverse_temperature": 3.0, "top_p": 0.7},
    {"top_k": 12, "min_p": 0.1},
    {"top_p": 0.0},
    {"inverse_temperature": 0.0},
    {},
]


def awkward_logits(rows: int, vocab: int) -> torch.Tensor:
    """Smooth ones, rows of many equals, half of a row -inf, a row of zeros of both signs."""
    torch.manual_seed(0)
    logits = 2.5 * torch.randn(rows, vocab)
    logits[1] = logits[1].round()
    logits[2, ::2] = -math.inf
    logits[3] = 0.0
    logits[3, ::3] = -0.0
    return logits


@pytest.mark.parametrize(
    "shift",
    [0, 3, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)],
)
def test_sampling_as_the_reference(served: Served, shift: int) -> None:
    """Every row has parameters of its own."""
    backend, device = served
    logits = awkward_logits(4, 50).to(device)
    inputs = drawing(device, 4)
    for row in range(4):
        for field, value in FILTERS[(row + shift) % len(FILTERS)].items():
            getattr(inputs, field)[row] = value
    out = torch.full((4,), -7, device=device)
    assert backend.sample(logits, inputs, out).data_ptr() == out.data_ptr()
    assert out.tolist() == REFERENCE.sample(logits, inputs).tolist()


def test_sampling_over_several_blocks(served: Served) -> None:
    backend, device = served
    logits = awkward_logits(4, 5000).to(device)
    inputs = drawing(device, 4)
    inputs.inverse_temperature[0] = 0.0
    inputs.top_p[1] = 0.9
    assert backend.sample(logits, inputs).tolist() == REFERENCE.sample(logits, inputs).tolist()


def test_a_row_that_cannot_be_drawn_from_is_told_apart(served: Served) -> None:
    backend, device = served
    logits = torch.zeros(5, 30, device=device)
    logits[1, 29] = math.nan
    logits[2] = -math.inf
    logits[3, 4] = math.inf
    logits[4, 7:9] = 200.0
    for inverse in (0.0, 1.0):
        found = backend.sample(logits, drawing(device, 5, inverse_temperature=inverse)).tolist()
        assert [token >= 0 for token in found] == [True, False, False, False, True]
        assert found[4] in ((7,) if inverse == 0.0 else (7, 8))


def test_draws_follow_the_probabilities() -> None:
    """Chi-squared over the tokens of one row drawn often, at a significance of 1 in 10,000."""
    rows = 4000
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 1.5]).expand(rows, 5).contiguous()
    counts = torch.bincount(REFERENCE.sample(logits, drawing(CPU, rows)), minlength=5)
    expected = rows * logits[0].softmax(0)
    assert ((counts - expected).square() / expected).sum() < 23.5  # 4 degrees of freedom
