"""Requests wait for their grammars beside the loop; nobody else waits for that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pagedd.core.events import StepEvents
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler
from pagedd.engine import desk as desk_module
from pagedd.engine.desk import Desk
from pagedd.engine.link import EngineLink
from pagedd.engine.loop import serve
from pagedd.engine.messages import (
    CancelRequest,
    Command,
    Explain,
    Report,
    Reprioritize,
    Shutdown,
    Step,
    Submit,
)
from pagedd.errors import BadRequest
from tests.core.symbolic import EOS
from tests.engine.device import Device, limits, submit
from tests.server.harness import until


class Gated:
    """Builds a grammar when its gate is opened. One that says so is wrong."""

    def __init__(self) -> None:
        self.built: set[str] = set()
        self.begun: list[str] = []
        self.gates: dict[str, threading.Event] = {}

    def gate(self, grammar: str) -> threading.Event:
        return self.gates.setdefault(grammar, threading.Event())

    def prepare(self) -> None:
        pass

    def is_built(self, grammar: str) -> bool:
        return grammar in self.built

    def build(self, grammar: str) -> None:
        self.begun.append(grammar)
        assert self.gate(grammar).wait(20)
        if grammar == "wrong":
            raise BadRequest("it is wrong")
        if grammar == "broken":
            raise RuntimeError("unforeseen")
        self.built.add(grammar)


class Bench:
    """A desk, its scheduler, and what has happened."""

    def __init__(self, **changes: Any) -> None:
        self.grammars = Gated()
        self.scheduler = Scheduler(limits(**changes), key=b"k")
        self.woken = threading.Event()
        self.desk = Desk(self.scheduler, self.grammars, self.woken.set)

    def take(self, *commands: Command) -> StepEvents:
        assert self.desk.take(list(commands), 0.0)
        return self.scheduler.take_events()

    def open(self, grammar: str) -> StepEvents:
        """Let it be built, wait until that is told; what has happened then."""
        self.woken.clear()
        self.grammars.gate(grammar).set()
        assert self.woken.wait(20)
        return self.take()


def guided(handle: int, grammar: str, priority: int = 0) -> Submit:
    return submit(handle, priority=priority, grammar=grammar)


def handles(found: list[Any]) -> list[int]:
    return [each.handle for each in found]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_others_go_on_meanwhile(bench: Bench) -> None:
    assert handles(bench.take(guided(1, "a"), submit(2)).accepted) == [2]
    assert handles(bench.open("a").accepted) == [1]


def test_what_is_built_does_not_wait(bench: Bench) -> None:
    bench.grammars.built.add("a")
    assert handles(bench.take(guided(1, "a"), submit(2)).accepted) == [1, 2]
    assert not bench.grammars.begun


def test_a_cancel_does_not_wait_for_it(bench: Bench) -> None:
    bench.take(guided(1, "a"))
    until(lambda: bench.grammars.begun, "the build to begin")
    events = bench.take(CancelRequest(1))
    assert handles(events.accepted) == [1]
    assert [(each.handle, each.cancelled) for each in events.finished] == [(1, True)]
    events = bench.open("a")
    assert not events
    assert bench.scheduler.idle


def test_one_that_was_cancelled_in_the_queue_is_not_built(bench: Bench) -> None:
    bench.take(guided(1, "a"), guided(2, "b"), guided(3, "c"))
    bench.take(CancelRequest(2))
    assert handles(bench.open("a").accepted) == [1]
    assert handles(bench.open("c").accepted) == [3]
    assert bench.grammars.begun == ["a", "c"]


def test_commands_for_it_keep_their_order(bench: Bench) -> None:
    bench.take(guided(1, "a", priority=3))
    assert not bench.take(Reprioritize(1, -2), Explain(1, 77))
    events = bench.open("a")
    assert handles(events.accepted) == [1]
    assert [(each.before, each.priority) for each in events.reprioritized] == [(3, -2)]
    assert [(each.ref, each.state) for each in events.explained] == [(77, "waiting")]


@pytest.mark.parametrize(
    ("grammar", "code", "said"),
    [("wrong", "bad_request", "it is wrong"), ("broken", "internal", "unforeseen")],
)
def test_one_that_fails_ends_its_request_alone(
    bench: Bench, grammar: str, code: str, said: str
) -> None:
    bench.take(guided(1, grammar), guided(2, "a"), Explain(1, 5))
    [failed] = (events := bench.open(grammar)).failed
    assert (failed.handle, failed.code) == (1, code)
    assert said in failed.message
    assert [each.state for each in events.explained] == [""]
    assert handles(bench.open("a").accepted) == [2]


def test_one_that_is_never_built_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread stays where it is; those behind it are built by another."""
    monkeypatch.setattr(desk_module, "BUILD_S", 0.01)
    bench.take(guided(1, "stuck"))
    assert bench.woken.wait(20)
    [failed] = bench.take().failed
    assert (failed.handle, failed.code) == (1, "bad_request")
    monkeypatch.setattr(desk_module, "BUILD_S", 20.0)
    bench.take(guided(2, "a"))
    assert handles(bench.open("a").accepted) == [2]
    bench.grammars.gate("stuck").set()
    until(lambda: "stuck" in bench.grammars.built, "the end of the build")
    assert not bench.take()


def test_the_queue_has_a_limit_for_them_too() -> None:
    bench = Bench(max_queue=2)
    events = bench.take(guided(1, "a"), guided(2, "a"), guided(3, "a"))
    assert [(each.handle, each.code) for each in events.failed] == [(3, "queue_full")]
    again = Submit(guided(4, "a").request, again=True)
    assert not bench.take(again).failed


def test_nothing_after_a_shutdown(bench: Bench) -> None:
    assert not bench.desk.take([Shutdown(), submit(1)], 0.0)
    assert not bench.scheduler.take_events()


class RecordingLink(EngineLink):
    """Gives out ``commands`` first, and keeps the reports."""

    def __init__(self, sock: socket.socket, commands: list[Command]) -> None:
        super().__init__(sock)
        self.commands = commands
        self.reports: list[Step] = []

    def drain(self, *, block: bool) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands or super().drain(block=block)

    def send(self, report: Report) -> None:
        assert isinstance(report, Step)
        self.reports.append(report)


@contextmanager
def linked(*commands: Command) -> Iterator[tuple[RecordingLink, socket.socket]]:
    ours, theirs = socket.socketpair()
    link = RecordingLink(theirs, list(commands))
    with ours:
        yield link, ours
    link.close()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_link_that_waits_is_woken() -> None:
    with linked() as (link, _):
        assert link.quiet()
        link.wake()
        link.wake()
        assert not link.quiet()
        assert link.drain(block=True) == []  # at once: it was woken before
        assert link.quiet()
        got: list[list[Command]] = []
        waiting = in_thread(lambda: got.append(link.drain(block=True)))
        link.wake()
        waiting.join(20)
        assert got == [[]]
        assert not link.closed


def test_a_link_that_nobody_drains_takes_any_number_of_calls() -> None:
    with linked() as (link, _):
        for _ in range(100_000):
            link.wake()
        assert link.drain(block=True) == []
    link.wake()  # it is closed: nothing happens


def test_an_idle_loop_begins_when_the_grammar_is_built() -> None:
    """Nothing else comes that could wake it."""
    request = Request(1, (1, 2, 3), SamplingParams(max_tokens=4, grammar="a"))
    with linked(Submit(request)) as (link, ours):
        grammars, config = Gated(), limits()
        scheduler, clock = Scheduler(config, key=b"k"), iter(range(10**9)).__next__
        loop = in_thread(lambda: serve(link, scheduler, Device(config), clock, grammars))
        until(lambda: grammars.begun, "the build to begin")
        assert not any(report.events.accepted for report in link.reports)
        grammars.gate("a").set()
        until(lambda: any(each.events.finished for each in link.reports), "the end of the request")
        ours.close()
        loop.join(20)
        assert not loop.is_alive()
        tokens = [token for report in link.reports for token in report.events.tokens]
        assert len(tokens) == 4 or tokens[-1].token in EOS
