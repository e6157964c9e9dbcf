"""The engine process, started by the daemon: ``python -m pagedd.engine.main --fd N --parent PID``.

The composition root of everything that computes: reads its configuration from the link, loads the
model, sizes the cache, and runs the loop.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import secrets
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.engine.desk import Grammars
from pagedd.engine.guided import FaultOf, GuidedScheduler
from pagedd.engine.link import EngineLink, LinkClosed
from pagedd.engine.loop import Runner, serve
from pagedd.engine.messages import EngineConfig, Fatal, Loading, Ready
from pagedd.engine.overlap import QueuedRunner, serve_overlapped
from pagedd.errors import PageddError

_PR_SET_PDEATHSIG = 1  # prctl(2)

# Of a terminal, and those that the daemon has a use for: they may be sent to every pagedd at once.
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Engine:
    """What the loop needs, and what the daemon is told when it is there."""

    ready: Ready
    scheduler: Scheduler
    runner: Runner | QueuedRunner[Any]
    grammars: Grammars | None = None


Build = Callable[[EngineConfig, Progress], Engine]


def run_engine(link: EngineLink, build: Build) -> int:
    """Configuration → build → loop. Returns the exit code; the daemon has been told of a failure.

    A PageddError while building is the fault of what was asked for: trying again cannot help.
    """
    try:
        config = link.config()
    except LinkClosed:
        return 0
    try:
        engine = build(config, lambda phase, fraction: link.send(Loading(phase, fraction)))
    except PageddError as error:
        link.send(Fatal(error.code, error.message, usage=True))
        return error.exit_code
    except Exception as error:
        return _fatal(link, "while the model was loaded", error)
    link.send(engine.ready)
    if engine.grammars is not None:
        engine.grammars.prepare()  # while the daemon makes its own tokenizer ready
    try:
        if isinstance(engine.runner, QueuedRunner):
            serve_overlapped(link, engine.scheduler, engine.runner, time.monotonic, engine.grammars)
        else:
            serve(link, engine.scheduler, engine.runner, time.monotonic, engine.grammars)
    except Exception as error:
        return _fatal(link, "in a step", error)
    return 0


def build_engine(config: EngineConfig, progress: Progress) -> Engine:
    """Load the model, convert its tokenizer, allocate the cache."""
    from pagedd.models.load import load_model
    from pagedd.models.resolve import resolve
    from pagedd.runtime.build import build_runner
    from pagedd.runtime.build_queued import build_queued_runner
    from pagedd.runtime.grammar import Grammars as ModelGrammars
    from pagedd.runtime.sizes import decide_shape, free_device_bytes
    from pagedd.runtime.threads import govern
    from pagedd.text.prepare import prepare

    files = resolve(config.model, need_weights=config.load_format != "dummy")
    progress("tokenizer", 0.0)
    text_dir = prepare(files)
    loaded = load_model(config, progress, partial(decide_shape, config))
    spec = loaded.spec
    grammars = ModelGrammars(text_dir, vocab_size=spec.vocab_size, eos_ids=spec.eos_ids)
    runner: Runner | QueuedRunner[Any]
    if loaded.device.type == "cuda":
        runner, shape = build_queued_runner(config, loaded, progress, grammars)
    else:
        on_cpu, shape = build_runner(config, loaded, progress, grammars)
        runner = govern(on_cpu, loaded.backend, config.threads)
    ready = Ready(
        model=files.name,
        text_dir=str(Path(text_dir)),
        device=shape.device,
        dtype=shape.dtype,
        vocab_size=spec.vocab_size,
        max_model_len=shape.max_model_len,
        page_size=shape.page_size,
        num_pages=shape.num_pages,
        num_host_pages=shape.num_host_pages,
        max_num_seqs=shape.max_num_seqs,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        eos_ids=tuple(sorted(spec.eos_ids)),
        page_bytes=shape.page_bytes,
        weights_bytes=loaded.model.weight_bytes,
        free_bytes=free_device_bytes(loaded.device),
        notes=(loaded.note, *shape.notes),
    )
    free = spec.rope.longest_free_prompt
    scheduler = build_scheduler(
        config, ready, free, shape.page_bytes, shape.swap_in_pages, grammars.fault_of
    )
    return Engine(ready, scheduler, runner, grammars)


def build_scheduler(
    config: EngineConfig,
    ready: Ready,
    longest_free_prompt: int | None = None,
    page_bytes: int = 0,
    swap_in_pages: int | None = None,
    fault_of: FaultOf = lambda handle: None,
) -> Scheduler:
    """The scheduler for an engine of this shape; prefixes are keyed anew in every process.

    ``longest_free_prompt``: see ``RopeSpec``. ``fault_of``: see ``Grammars``.
    """
    return GuidedScheduler(
        SchedulerConfig(
            num_pages=ready.num_pages,
            page_size=ready.page_size,
            max_num_seqs=ready.max_num_seqs,
            max_num_batched_tokens=ready.max_num_batched_tokens,
            max_model_len=ready.max_model_len,
            max_queue=config.max_queue,
            eos_ids=frozenset(ready.eos_ids),
            prefix_cache=config.prefix_cache,
            preemption_policy=config.preemption_policy,
            preemption_mode=config.preemption_mode,
            priority_aging=config.priority_aging,
            fair_share=config.fair_share,
            swap_in_ahead=ready.device.startswith("cuda"),
            swap_in_pages=swap_in_pages,
            num_host_pages=ready.num_host_pages,
            page_bytes=page_bytes,
            longest_free_prompt=longest_free_prompt,
        ),
        key=secrets.token_bytes(32),
        fault_of=fault_of,
    )


def start_process(argv: list[str], build: Build) -> int:
    """What every engine process does first: tie its life to the daemon's, then run.

    Ctrl-C, a closed terminal and what asks for a reload are the daemon's to act on. The engine
    ends when the link does, and on Linux by a signal when the daemon's thread is gone.
    """
    parser = argparse.ArgumentParser(prog="pagedd.engine.main")
    parser.add_argument("--fd", type=int, required=True, help="the connected socket of the link")
    parser.add_argument("--parent", type=int, required=True, help="the daemon's process id")
    args = parser.parse_args(argv)
    # Before torch is there. A thread that spins while it waits takes a core from whoever has work:
    # beside a busy program, throughput was a tenth of what it is with threads that sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != args.parent:
        return 0  # the daemon died before the signal was asked for
    link = EngineLink(socket.socket(fileno=args.fd))
    code = run_engine(link, lambda config, progress: _keep(build(config, progress)))
    link.close()
    return code


def _keep(engine: Engine) -> Engine:
    """Take the engine and all modules out of what the garbage collector looks through.

    They stay as long as the process, and with torch there are so many objects that a full
    collection in the middle of a step would take longer than the step.

    A full collection is put off until a quarter as many objects wait for it as were there at the
    last one: so there is one after the freeze too, of next to nothing. Otherwise what is left of
    requests, which refer to their sequences and are referred to, would pile up to many megabytes.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
    return engine


def _fatal(link: EngineLink, when: str, error: Exception) -> int:
    traceback.print_exception(error)
    link.send(Fatal("engine_failed", f"{type(error).__name__} {when}: {error}"))
    return 1


if __name__ == "__main__":
    sys.exit(start_process(sys.argv[1:], build_engine))
