"""Compile every Triton kernel variant for GPUs that are not here: ``python -m pagedd_kernels.aot``.

Prints registers, shared memory, stack, spills and kinds of instructions of each variant, and ends
with 1 if one exceeds its limits. No device is needed. What has been compiled once is looked up.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict

from pagedd_kernels.triton_.attention import attention_kernel
from pagedd_kernels.triton_.compile_cache import cache_folder, use_cache
from pagedd_kernels.triton_.compiled import Usage, UsageCache, measure
from pagedd_kernels.triton_.gate import Case, cases
from pagedd_kernels.triton_.launch import interpreted

WORKERS = 2


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a variant exceeds its limits, 2 if nothing can be compiled."""
    options = _parser().parse_args(arguments)
    if interpreted(attention_kernel):
        print("unset TRITON_INTERPRET: the interpreter compiles nothing", file=sys.stderr)
        return 2
    use_cache(os.environ)
    chosen = [
        index
        for index, case in enumerate(cases())
        if options.only in case.name and options.architecture in (None, case.architecture)
    ]
    faulty = 0
    rows = []
    for case, usage in _usages(chosen, options.jobs):
        faults = case.faults(usage)
        faulty += bool(faults)
        rows.append(
            {"architecture": case.architecture, "name": case.name}
            | asdict(usage)
            | {"faults": faults}
        )
        if not options.json and (faults or not options.quiet):
            print(_line(case, usage, faults), flush=True)
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{len(rows)} variants compile, {faulty} exceed their limits")
    return 1 if faulty or not rows else 0


def _usages(chosen: list[int], jobs: int) -> Iterator[tuple[Case, Usage]]:
    """Each chosen case with what it takes, in order; those not known are compiled."""
    known = _cache()
    every = cases()
    found = {index: known.find(every[index].launch, every[index].architecture) for index in chosen}
    missing = [index for index, usage in found.items() if usage is None]
    if jobs == 1 or len(missing) < 2 * jobs:  # not worth the processes' imports
        for index in chosen:
            yield every[index], found[index] or _compile(index)
        return
    print(f"compiling {len(missing)} variants", file=sys.stderr)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        compiled = {index: pool.submit(_compile, index) for index in missing}
        for index in chosen:
            yield every[index], found[index] or compiled[index].result()


def _compile(index: int) -> Usage:
    """Compile one case of ``cases()`` and keep what it takes; runs in a worker."""
    case = cases()[index]
    usage = measure(case.launch, case.architecture)
    _cache().keep(case.launch, case.architecture, usage)
    return usage


def _cache() -> UsageCache:
    return UsageCache(cache_folder(os.environ) / "usage")


def _line(case: Case, usage: Usage, faults: list[str]) -> str:
    """One row of the table."""
    return (
        f"sm_{case.architecture:<3} {case.name:30} {usage.registers:3} registers "
        f"{usage.shared / 1024:6.1f} KiB shared  stack {usage.stack}  spills {usage.spills}  "
        f"{'BAD: ' + ', '.join(faults) if faults else 'ok'}  {' '.join(usage.instructions)}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pagedd_kernels.aot", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="variants whose name has it")
    parser.add_argument("--architecture", type=int, metavar="90", help="of one architecture alone")
    parser.add_argument("--jobs", type=int, default=WORKERS, help="processes (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="a list of objects, not a table")
    parser.add_argument("--quiet", action="store_true", help="only variants that exceed limits")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
