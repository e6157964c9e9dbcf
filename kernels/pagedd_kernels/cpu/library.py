"""The compiled library's functions and the structures that cross into it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import c_char_p, c_float, c_int32, c_int64, c_void_p
from functools import cache
from typing import ClassVar

import torch

from pagedd_kernels.cpu.build import BuildError, library_file

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

Fields = list[tuple[str, type]]


class LinearStruct(ctypes.Structure):
    """``struct Linear`` of linear.h."""

    _fields_: ClassVar[Fields] = [
        ("dtype", c_int32),
        ("out_dtype", c_int32),
        ("n", c_int64),
        ("k", c_int64),
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("bits", c_int32),
        ("scale_dtype", c_int32),
    ]


class RowsStruct(ctypes.Structure):
    """``struct Rows`` of rows.h."""

    _fields_: ClassVar[Fields] = [
        ("dtype", c_int32),
        ("n", c_int64),
        ("k", c_int64),
        ("data", c_void_p),
        ("stride", c_int64),
        ("bits", c_int32),
        ("scale_dtype", c_int32),
    ]


class CacheStruct(ctypes.Structure):
    """``struct Cache`` of cache.h."""

    _fields_: ClassVar[Fields] = [
        ("data", c_void_p),
        ("page_stride", c_int64),
        ("layer_stride", c_int64),
        ("kv_heads", c_int64),
        ("page_size", c_int64),
        ("head_dim", c_int64),
        ("dtype", c_int32),
    ]


class PagesStruct(ctypes.Structure):
    """``struct Pages`` of page_copy.h."""

    _fields_: ClassVar[Fields] = [
        ("data", c_void_p),
        ("page_stride", c_int64),
        ("run_stride", c_int64),
    ]


class BatchStruct(ctypes.Structure):
    """``struct Batch`` of cache.h."""

    _fields_: ClassVar[Fields] = [
        ("slots", c_void_p),
        ("cu_seqlens", c_void_p),
        ("seq_lens", c_void_p),
        ("page_table", c_void_p),
        ("table_stride", c_int64),
        ("seqs", c_int64),
        ("tokens", c_int64),
    ]


class BlockStruct(ctypes.Structure):
    """``struct Block`` of stack.h."""

    _fields_: ClassVar[Fields] = [
        ("qkv", c_void_p),
        ("output", c_void_p),
        ("gate_up", c_void_p),
        ("down", c_void_p),
        ("input_norm", c_void_p),
        ("post_norm", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("window", c_int64),
        ("rotated", c_int32),
    ]


class StackStruct(ctypes.Structure):
    """``struct Stack`` of stack.h."""

    _fields_: ClassVar[Fields] = [
        ("blocks", c_void_p),
        ("count", c_int64),
        ("final_norm", c_void_p),
        ("hidden", c_int64),
        ("heads", c_int64),
        ("eps", c_float),
        ("scale", c_float),
    ]


P, I32, I64, F32 = c_void_p, c_int32, c_int64, c_float
SIGNATURES: Mapping[str, tuple[type | None, tuple[type, ...]]] = {
    "isa": (c_char_p, ()),
    "engine_new": (P, (I32,)),
    "engine_free": (None, (P,)),
    "set_threads": (None, (P, I32)),
    "panel": (I64, ()),
    "huge_pages": (None, (P, I64)),
    "packed_bytes": (I64, (I32, I64, I64)),
    "pack": (None, (P, I32, P, I64, I64, I64, P)),
    "packed_block_bytes": (I64, (I32, I32, I64, I64)),
    "pack_blocks": (None, (P, I32, I32, I32, P, P, P, I64, I64, P)),
    "linear": (None, (P, P, P, I64, P, I64)),
    "greedy": (None, (P, P, P, I64, I64, P)),
    "row_bytes": (I64, (I32, I32, I64)),
    "pack_rows": (None, (P, I32, I32, P, P, P, I64, I64, P)),
    "take_rows": (I32, (P, P, P, I64, P)),
    "rms_norm": (None, (P, I32, P, P, P, F32, P, I64, I64)),
    "silu_mul": (None, (P, I32, P, P, I64, I64)),
    "kv_write": (None, (P, P, P, P, I64, I64, I64, P, I64, P, P, F32)),
    "attention": (None, (P, P, P, P, I64, I64, I64, F32, I64, P)),
    "stack": (None, (P, P, P, P, P, I64, P, I64, P, P)),
    "page_copy": (None, (P, P, P, I64, I64, P, I64)),
    "argmax": (None, (P, P, I64, I64, I64, P)),
    "draw": (None, (P, P, I64, I64, I64, P, P, P)),
}


class Library:
    """The functions of one compiled library, each bound once with its argument types.

    Pointers are plain integers. A call releases the interpreter lock.
    """

    def __init__(self, path: str) -> None:
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in SIGNATURES.items():
            function = loaded[f"pagedd_{name}"]
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> ctypes._NamedFuncPointer:
        raise AttributeError(f"the kernel library has no function {name!r}")


@cache
def load_library(isa: str | None = None) -> Library | str:
    """The library for an instruction set, or why there is none, in one line.

    ``isa``: a key of ``build.ISA_FLAGS``; None takes ``$PAGEDD_CPU_ISA``, else what this
    processor has.
    """
    chosen = isa or os.environ.get("PAGEDD_CPU_ISA") or "native"
    try:
        return Library(str(library_file(chosen, os.environ)))
    except (BuildError, OSError) as error:
        return str(error)
