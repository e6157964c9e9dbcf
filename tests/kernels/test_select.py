"""Which backend is chosen, and what is said of those that are not."""

from __future__ import annotations

import pytest
import torch

import pagedd_kernels.backend
from pagedd_kernels.backend import BACKENDS, Entry, select_backend

CPU = torch.device("cpu")
ANYWHERE = frozenset({"cpu", "cuda"})
MISSING = Entry("missing", "pagedd_kernels.no_such_module", "Nothing", ANYWHERE)
TORCH = next(entry for entry in BACKENDS if entry.name == "torch")


def test_every_refused_backend_has_a_reason() -> None:
    selection = select_backend(CPU, torch.float32)
    names = [entry.name for entry in BACKENDS]
    assert [name for name, _ in selection.refused] == names[: names.index(selection.backend.name)]
    assert dict(selection.refused)["triton"] == "serves cuda devices, not cpu"


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagedd_kernels.backend, "BACKENDS", (MISSING, TORCH))
    selection = select_backend(CPU, torch.float32)
    assert selection.backend.name == "torch"
    [(name, reason)] = selection.refused
    assert name == "missing"
    assert "no_such_module" in reason


def test_a_named_backend_does_not_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagedd_kernels.backend, "BACKENDS", (MISSING, TORCH))
    with pytest.raises(ValueError, match=r"'missing' cannot serve: cannot be imported: .*module"):
        select_backend(CPU, torch.float32, "missing")
    named = select_backend(CPU, torch.float32, "torch")
    assert named.backend.name == "torch"
    assert named.refused == []


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="'metal': one of auto, triton, cpu, torch"):
        select_backend(CPU, torch.float32, "metal")


def test_a_dtype_that_no_backend_serves_is_refused_with_every_reason() -> None:
    with pytest.raises(ValueError, match=r"triton: .*; cpu: .*; torch: torch.int8 is no"):
        select_backend(CPU, torch.int8)
