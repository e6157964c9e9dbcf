"""Choosing tokens on the CPU: arg-max and draws by the inverse of the distribution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pagedd_kernels.cpu.backend import CpuBackend
from tests.kernels.cpu_isas import NEEDED, backend_of

NAN, INF = float("nan"), float("inf")


@pytest.fixture(params=list(NEEDED))
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return backend_of(request.param)


def inverse_cdf(logits: Tensor, inverse: Tensor, u: Tensor) -> Tensor:
    """The same draw in float64."""
    p = (logits.double() * inverse.double()[:, None]).softmax(-1)
    return torch.searchsorted(p.cumsum(-1), u.double()[:, None], right=True)[:, 0]


@pytest.mark.parametrize("size", [1, 3, 16, 17, 300, 513, 5000])
def test_argmax(backend: CpuBackend, size: int) -> None:
    logits = torch.randn(20, size)
    assert torch.equal(backend.argmax(logits), logits.argmax(-1))


def test_argmax_of_ties_is_the_least_id(backend: CpuBackend) -> None:
    logits = torch.zeros(3, 100)
    logits[1, 40] = logits[1, 77] = 1.0
    logits[2, :] = -INF
    logits[2, 99] = -3.0
    assert backend.argmax(logits).tolist() == [0, 40, 99]


@pytest.mark.parametrize("at", [0, 15, 16, 98, 99])
def test_argmax_of_what_cannot_be_chosen_from(backend: CpuBackend, at: int) -> None:
    logits = torch.randn(4, 100)
    logits[0, at] = NAN
    logits[1, :] = -INF
    logits[2, :] = INF
    logits[3, at] = INF
    assert backend.argmax(logits).tolist() == [-1, -1, -1, at]


def test_argmax_of_strided_rows_and_of_none(backend: CpuBackend) -> None:
    logits = torch.randn(5, 200)
    assert torch.equal(backend.argmax(logits[:, :77]), logits[:, :77].argmax(-1))
    assert backend.argmax(logits[:0]).shape == (0,)


@pytest.mark.parametrize("size", [1, 5, 300, 512, 513, 5000])
def test_draw_is_the_inverse_of_the_distribution(backend: CpuBackend, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    logits = 3 * torch.randn(200, size, generator=generator)
    u = torch.rand(200, generator=generator, dtype=torch.float64)
    inverse = 0.3 + torch.rand(200, generator=generator)
    drawn = backend.draw(logits, inverse, u)
    # float32 weights move the borders a little: both answers must hold u, nearly
    p = (logits.double() * inverse.double()[:, None]).softmax(-1)
    upper = p.cumsum(-1).gather(1, drawn[:, None])[:, 0]
    lower = upper - p.gather(1, drawn[:, None])[:, 0]
    assert (lower <= u + 1e-6).all()
    assert (u <= upper + 1e-6).all()
    assert (drawn == inverse_cdf(logits, inverse, u)).double().mean() > 0.99


def test_draw_at_the_ends(backend: CpuBackend) -> None:
    logits = torch.full((3, 2000), -INF)
    logits[:, 700] = 1.0
    logits[:, 1400] = 1.0
    one = torch.ones(3)
    u = torch.tensor([0.0, 0.5, 1.0 - 2**-53], dtype=torch.float64)
    assert backend.draw(logits, one, u).tolist() == [700, 1400, 1400]
    past = torch.ones(3, dtype=torch.float64)
    assert backend.draw(logits, one, past).tolist() == [1400, 1400, 1400]


def test_draw_at_low_temperature_is_the_largest(backend: CpuBackend) -> None:
    logits = torch.randn(50, 1000)
    drawn = backend.draw(logits, torch.full((50,), 1e9), torch.rand(50))
    assert torch.equal(drawn, logits.argmax(-1))


@pytest.mark.parametrize("at", [0, 16, 99])
def test_draw_from_what_is_no_distribution(backend: CpuBackend, at: int) -> None:
    logits = torch.randn(4, 100)
    logits[0, at] = NAN
    logits[1, :] = -INF
    logits[2, at] = INF
    drawn = backend.draw(logits, torch.ones(4), torch.full((4,), 0.3))
    assert drawn[:3].tolist() == [-1, -1, -1]
    assert 0 <= int(drawn[3]) < 100


def test_a_draw_is_the_same_alone_and_for_any_number_of_threads(backend: CpuBackend) -> None:
    logits, u, inverse = torch.randn(40, 3000), torch.rand(40), 0.5 + torch.rand(40)
    drawn = backend.draw(logits, inverse, u)
    backend.set_threads(1)
    assert torch.equal(backend.draw(logits, inverse, u), drawn)
    alone = [backend.draw(logits[i : i + 1], inverse[i : i + 1], u[i : i + 1]) for i in range(40)]
    assert torch.equal(torch.cat(alone), drawn)
