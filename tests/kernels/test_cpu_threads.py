"""The CPU kernels' threads: whole under stress, gone with the backend, asleep when idle."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from pagedd_kernels.cpu.threads import default_threads
from tests.kernels.cpu_isas import backend_of

TASKS = Path("/proc/self/task")
needs_proc = pytest.mark.skipif(not TASKS.exists(), reason="needs /proc")


def test_many_small_operations_on_many_threads() -> None:
    backend = backend_of("native", threads=6)
    weight, x = torch.randn(512, 16), torch.randn(5, 16)
    linear = backend.linear(weight, None)
    expected = linear(x)
    for _ in range(3000):
        assert torch.equal(linear(x), expected)


def test_calls_from_several_threads_exclude_each_other() -> None:
    backend = backend_of("native", threads=2)
    linear = backend.linear(torch.randn(300, 33).bfloat16(), None)
    inputs = [torch.randn(7, 33).bfloat16() for _ in range(4)]
    expected = [linear(x) for x in inputs]
    right = [False] * 4

    def repeat(i: int) -> None:
        right[i] = all(torch.equal(linear(inputs[i]), expected[i]) for _ in range(200))

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(right)


@needs_proc
def test_threads_come_and_go() -> None:
    program = """
def settle(count):  # a thread that has been joined may be listed a moment longer
    while len(os.listdir("/proc/self/task")) != count:
        os.sched_yield()
before = len(os.listdir("/proc/self/task")) - 2
assert before >= 1
backend.set_threads(5)
settle(before + 4)
backend.set_threads(1)
settle(before)
del linear, backend
other = CpuBackend(threads=2)
settle(before + 1)
del other
settle(before)
print("settled")
"""
    assert run(program) == "settled\n"


PROGRAM = """
import os, sys, torch
from pagedd_kernels.cpu.backend import CpuBackend
backend = CpuBackend(threads=3)
linear = backend.linear(torch.randn(4096, 64), None)
x = torch.randn(2, 64)
expected = linear(x)
"""


def run(program: str) -> str:
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM + program],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return ran.stdout


@needs_proc
def test_idle_threads_sleep() -> None:
    backend_of("native")
    program = """
import pathlib
def states():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return [t.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] for t in tasks]
while states().count("R") != 1:  # this thread alone
    os.sched_yield()
print("asleep")
"""
    assert run(program) == "asleep\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_computes_alone_and_ends() -> None:
    backend_of("native")
    program = """
import warnings
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    same = torch.equal(linear(x), expected)
    del linear, backend
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.equal(linear(x), expected))
"""
    assert run(program) == "0 True\n"


def test_one_thread_a_core_by_default(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    for cpu in cpus:
        siblings = tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        siblings.parent.mkdir(parents=True)
        siblings.write_text("0-63\n")
    assert default_threads(tmp_path) == 1
    assert default_threads(tmp_path / "none") == len(cpus)
