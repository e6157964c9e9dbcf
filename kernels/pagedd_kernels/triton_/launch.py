"""One launch of a kernel as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.float8_e5m2: "*fp8e5",
    torch.int64: "*i64",
    torch.int32: "*i32",
}


class Specialisation(NamedTuple):
    """What a kernel is compiled for, as ``triton.compiler.ASTSource`` takes it."""

    signature: dict[str, str]  # parameter → type
    constants: dict[str, Any]
    attributes: dict[tuple[int, ...], list[list[str | int]]]  # parameter number → what is known


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

    def load(self) -> None:
        """Compile it for the current device unless it is cached, and load the code; no launch.

        A later ``run`` with the same specialisation then compiles nothing.
        """
        compiled = self.kernel.warmup(grid=self.grid, **self.arguments, **self.options)
        # what a first launch would do, and a capture does not allow: the property loads the module
        _ = compiled.run

    def specialisation(self) -> Specialisation:
        """Types, constants and alignment as Triton derives them from the arguments.

        Tensors are taken to begin at a multiple of 16 bytes, as allocations do.
        """
        known = Specialisation({}, {}, {})
        for parameter in self.kernel.params:
            value = self.arguments[parameter.name]
            free = not parameter.do_not_specialize
            plain = parameter.is_constexpr or value is None
            if plain or (type(value) is int and value == 1 and free):
                known.signature[parameter.name] = "constexpr"
                known.constants[parameter.name] = value
                continue
            if isinstance(value, Tensor):
                known.signature[parameter.name] = TYPES[value.dtype]
                aligned = True
            elif isinstance(value, float):
                known.signature[parameter.name] = "fp32"
                aligned = False
            else:
                known.signature[parameter.name] = "i32"
                aligned = value % 16 == 0
            if aligned and free and not parameter.do_not_specialize_on_alignment:
                known.attributes[(parameter.num,)] = [["tt.divisibility", 16]]
        return known

    def key(self) -> str:
        """Equal for launches that share their compiled code."""
        return repr((self.kernel.__name__, self.specialisation(), self.options))


def interpreted(kernel: Any) -> bool:
    """Whether the kernel runs in Triton's interpreter (TRITON_INTERPRET=1 at its import)."""
    return isinstance(kernel, InterpretedFunction)
