"""From a loaded model to a runner: how many pages, how long a context, which batch."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor

from pagedd.core.plan import Chunk, Join, StepPlan
from pagedd.core.request import SamplingParams
from pagedd.engine.messages import EngineConfig
from pagedd.errors import UsageError
from pagedd.models.load import LoadedModel
from pagedd.runtime.batch import Batch
from pagedd.runtime.cuda_streams import CudaStreams, page_copier
from pagedd.runtime.deferred_swap import DeferredSwap
from pagedd.runtime.host_cache import HostCache
from pagedd.runtime.host_memory import map_zeros
from pagedd.runtime.runner import Runner
from pagedd.runtime.sampler import Draws, Sampler, TorchDraws
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.runtime.stream_swap import StreamSwap
from pagedd.runtime.swap import STEP_BYTES, Swap
from pagedd.runtime.threads import share_cores
from pagedd_kernels.backend import Backend

GIB = 1024**3
# The CPU shares its memory with everything else a person runs: a quarter of what is free, and no
# more than 4 GiB unless asked for.
CPU_KV_SHARE = 0.25
CPU_KV_LIMIT = 4 * GIB
# Swap space that nobody asked for: of what is free, and of what swapped sequences may need.
SWAP_LIMIT = GIB
SWAP_SHARE = 0.25
SWAP_POOLS = 4
# Swap space on the CPU that is ready before it is used: for the longest sequence, but no more than
SWAP_RESERVE = GIB // 4
PAGE_SIZE = {"cpu": 32, "cuda": 16}
# On the CPU a step of 256 rows takes as long as three steps of 32: running streams barely notice.
BATCHED_TOKENS = {"cpu": 256, "cuda": 8192}


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


def page_bytes(loaded: LoadedModel, page_size: int) -> int:
    """Bytes of one page: 2 · layers · kv_heads · page_size · head_dim · bytes of the dtype."""
    return loaded.spec.kv_bytes_per_token() * page_size


def build_runner(
    config: EngineConfig, loaded: LoadedModel, progress: Callable[[str, float], None]
) -> tuple[Runner, EngineShape]:
    """Size the cache, allocate it and run one worst-case step.

    Raises UsageError when what was asked for cannot be: more context than the model was made for,
    less memory than one page, or more swap space than there is.
    """
    share_cores(loaded.backend, config.threads)
    device = loaded.device
    page_size = config.page_size or PAGE_SIZE[device.type]
    budget = config.max_num_batched_tokens or BATCHED_TOKENS[device.type]
    wanted = _wanted_model_len(config, loaded)
    size = page_bytes(loaded, page_size)
    pages_per_seq = -(-wanted // page_size)
    num_pages = _num_pages(config, loaded.device, size)
    if num_pages < 1:
        raise UsageError(f"there is no memory for one page of {size:,} bytes")
    if config.num_pages is None:  # more could never be used
        num_pages = min(num_pages, pages_per_seq * config.max_num_seqs)
    max_model_len = min(wanted, num_pages * page_size)
    if max_model_len < 2:
        raise UsageError("the cache has room for 1 token: a prompt and its answer need 2")
    num_host_pages = _host_pages(config, loaded, num_pages, size)
    shape = EngineShape(
        num_pages=num_pages,
        num_host_pages=num_host_pages,
        page_size=page_size,
        page_bytes=size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        swap_in_pages=max(STEP_BYTES[device.type] // size, 1),
        device=str(device),
        dtype=str(loaded.spec.dtype).removeprefix("torch."),
        notes=(
            *_notes(loaded, num_pages, page_size, size, max_model_len, wanted),
            f"swap space: {num_host_pages:,} pages, {num_host_pages * size / GIB:.2f} GiB",
        ),
    )
    progress("pages", 0.0)
    runner = _runner(config, loaded, shape)
    progress("warm-up", 0.0)
    _warm_up(runner, shape)
    progress("warm-up", 1.0)
    return runner, shape


def free_device_bytes(device: torch.device) -> int | None:
    """Memory of a GPU that nobody uses now; None where the device's memory is the host's."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def _wanted_model_len(config: EngineConfig, loaded: LoadedModel) -> int:
    limit = loaded.spec.max_position
    if config.max_model_len is None:
        return limit
    if config.max_model_len > limit:
        raise UsageError(
            f"--max-model-len {config.max_model_len:,} is more than the model's {limit:,} positions"
        )
    return config.max_model_len


def _num_pages(config: EngineConfig, device: torch.device, size: int) -> int:
    """What was asked for, if there is room for it, or else a share of what is free."""
    if device.type == "cuda":
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


def _check_room(flag: str, wanted: int, free: int) -> None:
    if wanted > free:
        raise UsageError(f"{flag} {wanted:,} bytes is more than the {free:,} bytes that are free")


def _host_pages(config: EngineConfig, loaded: LoadedModel, num_pages: int, size: int) -> int:
    """Pages of swap space. What a cache on the CPU is going to take is not free any more."""
    free = psutil.virtual_memory().available
    if loaded.device.type == "cpu":
        free = max(free - num_pages * size, 0)
    if config.preemption_mode == "recompute":
        return 0
    asked, flag = config.swap_space, "--swap-space"
    if config.num_host_pages is not None:
        asked, flag = config.num_host_pages * size, "--num-host-pages"
    if asked is None:
        return min(int(min(free * SWAP_SHARE, SWAP_LIMIT)) // size, SWAP_POOLS * num_pages)
    _check_room(flag, asked, free)
    return asked // size


def _notes(
    loaded: LoadedModel, num_pages: int, page_size: int, size: int, max_len: int, wanted: int
) -> tuple[str, ...]:
    slots = num_pages * page_size
    notes = [
        f"KV cache: {num_pages:,} pages of {page_size} tokens, {num_pages * size / GIB:.2f} GiB, "
        f"room for {slots:,} tokens or {slots / max_len:.1f} sequences of {max_len:,}"
    ]
    if max_len < wanted:
        notes.append(
            f"max_model_len is lowered from {wanted:,} to {max_len:,}: the cache holds no more"
        )
    notes += [f"backend {name} is not used: {reason}" for name, reason in loaded.refused]
    return tuple(notes)


def _runner(config: EngineConfig, loaded: LoadedModel, shape: EngineShape) -> Runner:
    spec, device = loaded.spec, loaded.device
    dims = (shape.num_pages, spec.num_layers, 2, spec.num_kv_heads, shape.page_size, spec.head_dim)
    if device.type == "cpu":
        cache = map_zeros(dims, spec.dtype)
    else:
        cache = torch.zeros(dims, dtype=spec.dtype, device=device)
    longest = -(-shape.max_model_len // shape.page_size)
    reserve = min(longest, SWAP_RESERVE // shape.page_bytes)
    host_cache = HostCache(cache, shape.num_host_pages, reserve)
    batch = Batch(
        max_num_seqs=shape.max_num_seqs,
        max_tokens=shape.max_num_batched_tokens,
        max_model_len=shape.max_model_len,
        page_size=shape.page_size,
        device=device,
    )
    rows = SamplingRows(
        max_num_seqs=shape.max_num_seqs,
        vocab_size=spec.vocab_size,
        eos_ids=frozenset(spec.eos_ids),
        seed=config.seed if config.seed is not None else secrets.randbits(63),
    )
    backend = loaded.backend
    draws: Draws = backend if isinstance(backend, Draws) else TorchDraws()
    swap = _swap(loaded.backend, cache, host_cache.pages)
    return Runner(loaded, cache, host_cache, swap, batch, Sampler(rows, draws))


def _swap(backend: Backend, cache: Tensor, host: Tensor) -> Swap:
    if not cache.is_cuda:
        return DeferredSwap(cache, host, backend)
    return StreamSwap(CudaStreams(cache, host), page_copier(backend.page_copy, cache))


def _warm_up(runner: Runner, shape: EngineShape) -> None:
    """One step as large as any will be, so that the first request meets warm memory and kernels."""
    length = min(shape.max_num_batched_tokens, shape.max_model_len)
    pages = tuple(range(-(-length // shape.page_size)))
    params = SamplingParams(max_tokens=1, temperature=0.0)
    join = Join(0, 0, 0, (0,) * length, length, params, pages)
    chunks = (Chunk(0, 0, length, (0,)),)
    runner.execute(StepPlan(0, (), (), (), (), (join,), (), chunks))
    runner.execute(StepPlan(0, (), (), (), (0,), (), (), (Chunk(0, 0, 1, ()),)))
