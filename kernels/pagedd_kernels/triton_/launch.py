"""One launch of a kernel as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton.runtime.interpreter import InterpretedFunction


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, its grid and everything it is called with, by the kernel's parameter names.

    The tensors may be on the meta device: then it can be compiled for another machine, not run.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    num_warps: int
    num_stages: int = 3

    @property
    def options(self) -> dict[str, Any]:
        """How it is compiled."""
        return {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "enable_fp_fusion": True,  # Triton's default depends on its version
        }

    def run(self) -> None:
        """Enqueue it on the current stream of the current device; an empty grid does nothing."""
        if 0 not in self.grid:
            self.kernel[self.grid](**self.arguments, **self.options)


def interpreted(kernel: Any) -> bool:
    """Whether the kernel runs in Triton's interpreter (TRITON_INTERPRET=1 at its import)."""
    return isinstance(kernel, InterpretedFunction)
