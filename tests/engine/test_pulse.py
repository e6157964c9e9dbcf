"""Whether a process moves, by what the system says of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pagedd.engine.pulse import Pulse
from tests.server.harness import until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", f"print('up', flush=True)\n{code}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        try:
            yield child
        finally:
            child.kill()


def look(pulse: Pulse, clock: Clock) -> float:
    clock.now += 1.0
    pulse.look()
    return pulse.still_s


def test_who_computes_is_never_still() -> None:
    with process("while True: pass") as child:
        clock = Clock()
        pulse = Pulse(child.pid, clock)
        for _ in range(5):
            until(lambda: look(pulse, clock) == 0.0, "a look after some computing")
        assert not pulse.stopped


def test_who_waits_is_still_for_as_long_as_it_waits() -> None:
    with process("input()") as child:
        clock = Clock()
        pulse = Pulse(child.pid, clock)
        until(lambda: look(pulse, clock) > 0.0, "the end of its start")
        before = pulse.still_s
        assert look(pulse, clock) == before + 1.0
        assert not pulse.stopped


def test_who_was_stopped_is_told_until_it_goes_on() -> None:
    with process("input()") as child:
        pulse = Pulse(child.pid)
        child.send_signal(signal.SIGSTOP)
        until(lambda: pulse.look() or pulse.stopped, "the stop")
        child.send_signal(signal.SIGCONT)
        until(lambda: pulse.look() or not pulse.stopped, "the end of the stop")


def test_who_is_gone_is_not_stopped() -> None:
    with process("input()") as child:
        pulse = Pulse(child.pid)
        child.send_signal(signal.SIGSTOP)
        until(lambda: pulse.look() or pulse.stopped, "the stop")
    pulse.look()
    assert not pulse.stopped
