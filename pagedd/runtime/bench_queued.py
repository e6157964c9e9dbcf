"""``python -m pagedd.runtime.bench_queued``: whole steps on a GPU against the memory's floor.

A step that decodes must read the weights once and all keys and values of its sequences; what it
takes beside that at the rate of a measured copy is what the engine costs. Weights are dummies with
the shapes of real models, which take the same time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

from pagedd.core.plan import Chunk, Join, StepPlan
from pagedd.core.request import SamplingParams
from pagedd.engine.messages import EngineConfig
from pagedd.models.load import LoadedModel, load_model
from pagedd.runtime.build_queued import build_queued_runner, queued_runner
from pagedd.runtime.queued_runner import QueuedRunner
from pagedd.runtime.sizes import EngineShape, decide_shape
from pagedd_kernels.bench import SMALL, Shape, copy_rate

WARM_UP = 3  # steps
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 500000.0}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_theta": 1000000.0}
# By name: the config of a checkpoint, as far as its speed depends on it.
MODELS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "8b": LLAMA
        | {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
        "0.6b": QWEN3
        | {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40960,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
        },
        "tiny": QWEN3
        | {
            "vocab_size": 300,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
        },
    }
)


def write_config(name: str, folder: Path) -> Path:
    """A folder for ``--load-format dummy``, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODELS[name]))
    return folder


def decode_plan(batch: int, context: int, page_size: int) -> StepPlan:
    """``batch`` sequences, each with one token of its ``context`` to compute."""
    pages = -(-context // page_size)
    params = SamplingParams(max_tokens=1, temperature=0.0)
    joins = tuple(
        Join(slot, slot, 0, (7,) * context, context, params, tuple(range(first, first + pages)))
        for slot, first in enumerate(range(0, batch * pages, pages))
    )
    chunks = tuple(Chunk(slot, context - 1, 1, (slot,)) for slot in range(batch))
    return StepPlan(0, (), (), (), (), joins, (), chunks)


def step_seconds(runner: QueuedRunner, plan: StepPlan, steps: int) -> float:
    """Of one of ``steps`` that are launched one ahead, as an engine does."""
    runner.execute(plan)
    again = StepPlan(1, (), (), (), (), (), (), plan.chunks)
    began = perf_counter()
    flight = runner.launch(again)
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            began = perf_counter()
        later = runner.launch(again)
        runner.collect(flight)
        flight = later
    seconds = (perf_counter() - began) / steps
    runner.collect(flight)
    for chunk in plan.chunks:
        runner.rows.leave(chunk.slot)
    return seconds


def floor_bytes(loaded: LoadedModel, batch: int, context: int) -> int:
    """What must be read: weights but the rows of an embedding of its own, keys and values."""
    spec, model = loaded.spec, loaded.model
    weights = model.weight_bytes
    if not spec.tie_embeddings:
        weights -= sum(tensor.nbytes for tensor in model.embedding.tensors)
    return weights + batch * context * spec.kv_bytes_per_token()


def main(arguments: list[str] | None = None) -> int:
    """JSON, one line a setting."""
    parser = argparse.ArgumentParser(prog="python -m pagedd.runtime.bench_queued")
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--setting", action="append", help="BATCHxCONTEXT", required=True)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args(arguments)
    settings = [tuple(map(int, setting.split("x"))) for setting in args.setting]
    with tempfile.TemporaryDirectory() as folder:
        loaded, runner, shape = _build(args, Path(folder), settings)
    device = loaded.device
    copy = copy_rate(device, Shape() if device.type == "cuda" else SMALL)
    for batch, context in settings:
        plan = decode_plan(batch, context, shape.page_size)
        seconds = step_seconds(runner, plan, args.steps)
        found = {
            "model": args.model,
            "batch": batch,
            "context": context,
            "seconds": seconds,
            "floor": floor_bytes(loaded, batch, context) / copy,
            "tokens_per_s": batch / seconds,
        }
        print(json.dumps(found), flush=True)
    return 0


def _build(
    args: argparse.Namespace, folder: Path, settings: list[tuple[int, ...]]
) -> tuple[LoadedModel, QueuedRunner, EngineShape]:
    """The model and a runner with room for all settings; on the CPU nothing is recorded."""
    config = EngineConfig(
        model=str(write_config(args.model, folder)),
        load_format="dummy",
        dtype=args.dtype,
        device=args.device,
        max_num_seqs=max(batch for batch, _ in settings),
        max_model_len=max(context for _, context in settings) + 1,
        page_size=16,
        num_host_pages=0,
        num_pages=max(batch * -(-context // 16) for batch, context in settings) + 1,
        max_num_batched_tokens=2048,
    )
    loaded = load_model(config, _say)
    if loaded.device.type == "cuda":
        return (loaded, *build_queued_runner(config, loaded, _say))
    shape = decide_shape(config, loaded.spec, loaded.device)
    return loaded, queued_runner(config, loaded, shape, None), shape


def _say(phase: str, fraction: float) -> None:
    if fraction in (0.0, 1.0):
        print(f"{phase}: {fraction:.0%}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
