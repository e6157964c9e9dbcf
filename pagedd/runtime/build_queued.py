"""From a loaded model to a runner for a GPU: its memory is measured, its graphs are recorded."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel
from pagedd.runtime.cuda_streams import CudaStreams, page_copier
from pagedd.runtime.deferred_swap import DeferredSwap
from pagedd.runtime.device_step import CudaRecorder, DeviceStep, Graphs, Record, Samples, buckets
from pagedd.runtime.footprint import CudaMeter, Footprint, largest_step, measure
from pagedd.runtime.grammar import Grammars
from pagedd.runtime.host_cache import HostCache
from pagedd.runtime.queued_batch import QueuedBatch
from pagedd.runtime.queued_runner import QueuedRunner
from pagedd.runtime.sampling_rows import SamplingRows
from pagedd.runtime.sizes import EngineShape, decide_shape
from pagedd.runtime.stream_swap import StreamSwap
from pagedd.runtime.swap import Swap
from pagedd_kernels.backend import Backend
from pagedd_kernels.graph_backend import GraphBackend, KernelShape
from pagedd_kernels.reference import TorchBackend

Progress = Callable[[str, float], None]


def build_queued_runner(
    config: EngineConfig,
    loaded: LoadedModel,
    progress: Progress,
    grammars: Grammars | None = None,
) -> tuple[QueuedRunner, EngineShape]:
    """Compile, measure, allocate, record. Raises: see ``decide_shape``."""
    backend, device = loaded.backend, loaded.device
    shape = decide_shape(config, loaded.spec, device, loaded.refused)
    graph_backend = backend if isinstance(backend, GraphBackend) else None
    if graph_backend is not None:
        kernels = kernel_shape(loaded, shape)

        def say(done: int, count: int, name: str) -> None:
            progress("kernels", done / count)

        graph_backend.warm_up(kernels, device, say)
    record: Record | None = None
    if graph_backend is not None and graph_backend.capturable and not config.enforce_eager:
        record = CudaRecorder(device)
    progress("memory", 0.0)
    footprint = _footprint(config, loaded, shape, record)
    shape = decide_shape(config, loaded.spec, device, loaded.refused, footprint)
    progress("pages", 0.0)
    runner = queued_runner(config, loaded, shape, record, grammars)
    if record is not None:
        runner.graphs.capture(
            buckets(shape.max_num_seqs), lambda fraction: progress("graphs", fraction)
        )
    progress("warm-up", 0.0)
    _run(runner, shape)
    progress("warm-up", 1.0)
    return runner, shape


def queued_runner(
    config: EngineConfig,
    loaded: LoadedModel,
    shape: EngineShape,
    record: Record | None,
    grammars: Grammars | None = None,
) -> QueuedRunner:
    """The runner with its memory, and no graph yet; ``record`` None: there will be none."""
    spec, device, backend = loaded.spec, loaded.device, loaded.backend
    dims = (shape.num_pages, spec.num_layers, 2, spec.num_kv_heads, shape.page_size, spec.head_dim)
    cache = torch.zeros(dims, dtype=spec.cache_dtype, device=device)
    host_cache = HostCache(cache, shape.num_host_pages, reserve=0)
    batch = QueuedBatch(
        max_num_seqs=shape.max_num_seqs,
        max_tokens=shape.max_num_batched_tokens,
        max_model_len=shape.max_model_len,
        page_size=shape.page_size,
        device=device,
        # no checkpoint that is read here tells the ranges of its keys and values
        kv_scales=None if spec.kv_dtype is None else torch.ones(spec.num_layers, 2, device=device),
    )
    rows = SamplingRows(
        max_num_seqs=shape.max_num_seqs,
        vocab_size=spec.vocab_size,
        eos_ids=frozenset(spec.eos_ids),
        seed=config.seed if config.seed is not None else secrets.randbits(63),
        device=device,
        grammars=grammars,
    )
    sampler: Samples = backend if isinstance(backend, GraphBackend) else TorchBackend()
    step = DeviceStep(loaded.model, sampler, batch, cache)
    graphs = Graphs(step, batch, record)
    swap = _swap(backend, cache, host_cache.pages)
    return QueuedRunner(step, graphs, cache, host_cache, swap, batch, rows)


def kernel_shape(loaded: LoadedModel, shape: EngineShape) -> KernelShape:
    """What the kernels of the model are compiled for."""
    spec = loaded.spec
    return KernelShape(
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rope_dim=spec.rope.dim,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        vocab_size=spec.vocab_size,
        page_size=shape.page_size,
        max_num_seqs=shape.max_num_seqs,
        max_model_len=shape.max_model_len,
        windows=frozenset(spec.windows),
        rope_layers=frozenset(spec.rope_layers),
        qk_norm=spec.qk_norm,
        dtype=spec.dtype,
        cache_dtype=spec.cache_dtype,
    )


def _swap(backend: Backend, cache: Tensor, host: Tensor) -> Swap:
    if not cache.is_cuda:
        return DeferredSwap(cache, host, backend)
    return StreamSwap(CudaStreams(cache, host), page_copier(backend.page_copy, cache))


def _footprint(
    config: EngineConfig, loaded: LoadedModel, shape: EngineShape, record: Record | None
) -> Footprint:
    """Measured with a cache of one page, which all sequences write to."""
    trial = queued_runner(config, loaded, replace(shape, num_pages=1, num_host_pages=0), record)
    largest = buckets(shape.max_num_seqs)[-1:]
    capture = partial(trial.graphs.capture, largest, lambda fraction: None)
    return measure(
        CudaMeter(loaded.device),
        loaded.model.weight_bytes,
        trial.cache.nbytes + trial.batch.nbytes,
        lambda: _run(trial, shape),
        None if record is None else capture,
    )


def _run(runner: QueuedRunner, shape: EngineShape) -> None:
    """One step as large as any will be; after it nobody has a slot."""
    plan = largest_step(
        shape.max_num_seqs, shape.max_num_batched_tokens, shape.max_model_len, shape.page_size
    )
    runner.collect(runner.launch(plan))
    for join in plan.join:
        runner.rows.leave(join.slot)
