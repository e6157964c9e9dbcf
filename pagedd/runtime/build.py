"""From a loaded model to a runner for the CPU: its memory, its batch, and a first step."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from pagedd.core.plan import Chunk, Join, StepPlan
from pagedd.core.request import SamplingParams
from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel
from pagedd.runtime.batch import Batch
from pagedd.runtime.deferred_swap import DeferredSwap
from pagedd.runtime.grammar import Grammars
from pagedd.runtime.host_cache import HostCache
from pagedd.runtime.host_memory import map_zeros
from pagedd.runtime.runner import Runner
from pagedd.runtime.sampler import Draws, Sampler, TorchDraws
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.runtime.sizes import GIB, EngineShape, decide_shape
from pagedd.runtime.threads import share_cores

# Swap space on the CPU that is ready before it is used: for the longest sequence, but no more than
SWAP_RESERVE = GIB // 4


def build_runner(
    config: EngineConfig,
    loaded: LoadedModel,
    progress: Callable[[str, float], None],
    grammars: Grammars | None = None,
) -> tuple[Runner, EngineShape]:
    """Size the cache, allocate it and run one worst-case step. Raises: see ``decide_shape``.

    The runner for the CPU, which waits for each step; ``build_queued`` has that for a GPU.
    """
    share_cores(loaded.backend, config.threads)
    shape = decide_shape(config, loaded.spec, loaded.device, loaded.refused)
    progress("pages", 0.0)
    runner = _runner(config, loaded, shape, grammars)
    progress("warm-up", 0.0)
    _warm_up(runner, shape)
    progress("warm-up", 1.0)
    return runner, shape


def _runner(
    config: EngineConfig, loaded: LoadedModel, shape: EngineShape, grammars: Grammars | None
) -> Runner:
    spec = loaded.spec
    block = (2, spec.num_kv_heads, shape.page_size, spec.head_dim)
    # layer by layer: what a layer reads lies near each other, so more addresses are known already
    cache = map_zeros((spec.num_layers, shape.num_pages, *block), spec.cache_dtype).transpose(0, 1)
    longest = -(-shape.max_model_len // shape.page_size)
    reserve = min(longest, SWAP_RESERVE // shape.page_bytes)
    host_cache = HostCache(cache, shape.num_host_pages, reserve)
    batch = Batch(
        max_num_seqs=shape.max_num_seqs,
        max_tokens=shape.max_num_batched_tokens,
        max_model_len=shape.max_model_len,
        page_size=shape.page_size,
    )
    rows = SamplingRows(
        max_num_seqs=shape.max_num_seqs,
        vocab_size=spec.vocab_size,
        eos_ids=frozenset(spec.eos_ids),
        seed=config.seed if config.seed is not None else secrets.randbits(63),
        grammars=grammars,
    )
    backend = loaded.backend
    draws: Draws = backend if isinstance(backend, Draws) else TorchDraws()
    swap = DeferredSwap(cache, host_cache.pages, backend)
    return Runner(loaded, cache, host_cache, swap, batch, Sampler(rows, draws))


def _warm_up(runner: Runner, shape: EngineShape) -> None:
    """One step as large as any will be, so that the first request meets warm memory and kernels."""
    length = min(shape.max_num_batched_tokens, shape.max_model_len)
    pages = tuple(range(-(-length // shape.page_size)))
    params = SamplingParams(max_tokens=1, temperature=0.0)
    join = Join(0, 0, 0, (0,) * length, length, params, pages)
    chunks = (Chunk(0, 0, length, (0,)),)
    runner.execute(StepPlan(0, (), (), (), (), (join,), (), chunks))
    runner.execute(StepPlan(0, (), (), (), (0,), (), (), (Chunk(0, 0, 1, ()),)))
