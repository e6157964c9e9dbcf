"""How many pages, how long a context, how much swap space: decided from what is free."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from pagedd.engine.messages import EngineConfig
from pagedd.errors import UsageError
from pagedd.models.spec import ModelSpec
from pagedd.runtime.footprint import Footprint
from pagedd.runtime.swap import STEP_BYTES

GIB = 1024**3
# The CPU shares its memory with everything else a person runs: a quarter of what is free, and no
# more than 4 GiB unless asked for.
CPU_KV_SHARE = 0.25
CPU_KV_LIMIT = 4 * GIB
# Swap space that nobody asked for: of what is free, and of what swapped sequences may need.
SWAP_LIMIT = GIB
SWAP_SHARE = 0.25
SWAP_POOLS = 4
PAGE_SIZE = {"cpu": 32, "cuda": 16}
# On the CPU a step of 384 rows takes as long as four of 32: running streams barely notice, and
# first tokens come a fifth sooner than with 256.
BATCHED_TOKENS = {"cpu": 384, "cuda": 8192}


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What was decided about sizes; ``notes`` are sentences for the log."""

    num_pages: int
    num_host_pages: int
    page_size: int
    page_bytes: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    swap_in_pages: int  # to copy in at a time
    device: str
    dtype: str
    notes: tuple[str, ...]


def decide_shape(
    config: EngineConfig,
    spec: ModelSpec,
    device: torch.device,
    refused: tuple[tuple[str, str], ...] = (),
    footprint: Footprint | None = None,
) -> EngineShape:
    """Sizes for a model of ``spec``, whose dtype is that of the activations.

    ``refused`` are the kernel backends that would have been preferred, and why. Raises UsageError
    when what was asked for cannot be: more context than the model was made for, less memory than
    one page, or more pages or swap space than there is memory. Before the model is loaded too much
    is free; what is refused then would be refused later too.
    """
    page_size = config.page_size or PAGE_SIZE[device.type]
    wanted = _wanted_model_len(config, spec)
    size = spec.kv_bytes_per_token() * page_size
    pages_per_seq = -(-wanted // page_size)
    num_pages = _num_pages(config, device, size, footprint)
    if num_pages < 1:
        raise UsageError(f"there is no memory for one page of {size:,} bytes")
    if config.num_pages is None:  # more could never be used
        num_pages = min(num_pages, pages_per_seq * config.max_num_seqs)
    max_model_len = min(wanted, num_pages * page_size)
    if max_model_len < 2:
        raise UsageError("the cache has room for 1 token: a prompt and its answer need 2")
    num_host_pages = _host_pages(config, device, num_pages, size)
    notes = _notes(num_pages, page_size, size, max_model_len, wanted)
    if footprint is not None:
        notes = (footprint.note(config.gpu_memory_utilization, num_pages * size), *notes)
    return EngineShape(
        num_pages=num_pages,
        num_host_pages=num_host_pages,
        page_size=page_size,
        page_bytes=size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens or BATCHED_TOKENS[device.type],
        max_model_len=max_model_len,
        swap_in_pages=max(STEP_BYTES[device.type] // size, 1),
        device=str(device),
        dtype=_name(spec.dtype),
        notes=(
            *notes,
            *(() if spec.kv_dtype is None else (f"KV cache: in {_name(spec.kv_dtype)}",)),
            f"swap space: {num_host_pages:,} pages, {num_host_pages * size / GIB:.2f} GiB",
            *(f"backend {name} is not used: {reason}" for name, reason in refused),
        ),
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def free_device_bytes(device: torch.device) -> int | None:
    """Memory of a GPU that nobody uses now; None where the device's memory is the host's."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def _wanted_model_len(config: EngineConfig, spec: ModelSpec) -> int:
    limit = spec.max_position
    if config.max_model_len is None:
        return limit
    if config.max_model_len > limit:
        raise UsageError(
            f"--max-model-len {config.max_model_len:,} is more than the model's {limit:,} positions"
        )
    return config.max_model_len


def _num_pages(
    config: EngineConfig, device: torch.device, size: int, footprint: Footprint | None
) -> int:
    """What was asked for, if there is room for it, or else a share of what is free."""
    if footprint is not None:
        share: float = footprint.left(config.gpu_memory_utilization)
        free = footprint.left(1.0)
    elif device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        share = total * config.gpu_memory_utilization - (total - free)
    else:
        free = psutil.virtual_memory().available
        share = min(free * CPU_KV_SHARE, CPU_KV_LIMIT)
    if config.num_pages is not None:
        _check_room(f"--num-pages {config.num_pages:,}:", config.num_pages * size, free)
        return config.num_pages
    if config.kv_cache_memory is not None:
        _check_room("--kv-cache-memory", config.kv_cache_memory, free)
        return config.kv_cache_memory // size
    return int(share) // size


def _check_room(flag: str, wanted: int, free: int, beside: str = "") -> None:
    if wanted > free:
        raise UsageError(
            f"{flag} {wanted:,} bytes is more than the {free:,} bytes that are free{beside}"
        )


def _host_pages(config: EngineConfig, device: torch.device, num_pages: int, size: int) -> int:
    """Pages of swap space. What a cache on the CPU is going to take is not free any more."""
    free, beside = psutil.virtual_memory().available, ""
    if device.type == "cpu":
        free, beside = max(free - num_pages * size, 0), " beside the KV cache"
    if config.preemption_mode == "recompute":
        return 0
    asked, flag = config.swap_space, "--swap-space"
    if config.num_host_pages is not None:
        asked, flag = config.num_host_pages * size, "--num-host-pages"
    if asked is None:
        return min(int(min(free * SWAP_SHARE, SWAP_LIMIT)) // size, SWAP_POOLS * num_pages)
    _check_room(flag, asked, free, beside)
    return asked // size


def _notes(num_pages: int, page_size: int, size: int, max_len: int, wanted: int) -> tuple[str, ...]:
    slots = num_pages * page_size
    notes = [
        f"KV cache: {num_pages:,} pages of {page_size} tokens, {num_pages * size / GIB:.2f} GiB, "
        f"room for {slots:,} tokens or {slots / max_len:.1f} sequences of {max_len:,}"
    ]
    if max_len < wanted:
        notes.append(
            f"max_model_len is lowered from {wanted:,} to {max_len:,}: the cache holds no more"
        )
    return tuple(notes)
