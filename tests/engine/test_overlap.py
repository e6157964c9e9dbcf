"""The overlapped loop in this process: the real scheduler, a device that answers late."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pagedd.engine.main import Engine, run_engine
from pagedd.engine.messages import (
    CancelRequest,
    Command,
    EngineConfig,
    Reprioritize,
    Shutdown,
    Submit,
)
from pagedd.engine.overlap import serve_overlapped
from tests.engine.device import Device, limits, run, scheduler, submit, texts
from tests.engine.parts import READY
from tests.engine.test_loop import Script, ScriptedLink


def test_a_step_is_launched_before_the_one_before_is_collected() -> None:
    device = Device(limits())
    steps = run([[submit(1, max_tokens=3, ignore_eos=True)]], device)
    first = ["launch 0", "launch 1", "collect 0", "launch 2", "collect 1", "collect 2"]
    assert device.order == first
    assert [len(step.events.tokens) for step in steps if step.phases] == [1, 1, 1]
    assert {"plan", "execute", "commit", "send"} <= set(steps[1].phases)


def test_it_rests_only_when_nothing_is_under_way() -> None:
    device = Device(limits())
    link = ScriptedLink([[submit(1, max_tokens=1)], [], [], []])
    serve_overlapped(link, scheduler(device.config), device, lambda: 0.0)
    assert link.blocked == [True, False, True, True, True]


def test_what_waits_for_a_step_under_way_is_planned_when_that_is_collected() -> None:
    """One slot: the second request begins when the first, known to end, has ended."""
    device = Device(limits(max_num_seqs=1))
    script: Script = [[submit(1, max_tokens=2, ignore_eos=True), submit(2, ignore_eos=True)]]
    assert [len(text) for text in texts(run(script, device)).values()] == [2, 6]


def test_shutdown_collects_what_is_under_way() -> None:
    device = Device(limits())
    run([[submit(1)], [], [Shutdown()]], device)
    assert sum(each.startswith("launch") for each in device.order) == 2
    assert device.order[-1] == "collect 1"


class ConfiguredLink(ScriptedLink):
    """One that brings a configuration."""

    def config(self) -> EngineConfig:
        return EngineConfig(model="none")


def test_an_engine_whose_runner_launches_runs_one_step_ahead() -> None:
    device = Device(limits())
    link = ConfiguredLink([[submit(1, max_tokens=2, ignore_eos=True)], [], [], []])
    engine = Engine(READY, scheduler(device.config), device)
    assert run_engine(link, lambda config, progress: engine) == 0
    assert device.order == ["launch 0", "launch 1", "collect 0", "collect 1"]


COMMANDS = st.one_of(
    st.builds(
        lambda length, priority, tokens, n, ends: ("submit", length, priority, tokens, n, ends),
        st.integers(1, 16),
        st.integers(-1, 1),
        st.integers(1, 12),
        st.integers(1, 3),
        st.booleans(),
    ),
    st.tuples(st.just("cancel"), st.integers(1, 8)),
    st.tuples(st.just("reprioritize"), st.integers(1, 8), st.integers(-2, 2)),
)
SCRIPTS = st.lists(st.lists(COMMANDS, max_size=2), min_size=4, max_size=20)


def commands_of(blocks: list[list[tuple[Any, ...]]]) -> tuple[Script, set[int]]:
    """The script, and the handles that are cancelled in it."""
    script: Script = []
    cancelled: set[int] = set()
    handle = 0
    for block in blocks:
        commands: list[Command] = []
        for kind, *values in block:
            if kind == "submit":
                handle += 1
                length, priority, tokens, n, ends = values
                commands.append(
                    submit(handle, length, priority, max_tokens=tokens, n=n, ignore_eos=ends)
                )
            elif kind == "cancel":
                commands.append(CancelRequest(values[0]))
                cancelled.add(values[0])
            else:
                commands.append(Reprioritize(*values))
        script.append(commands)
    return script, cancelled


def check_same(blocks: list[list[tuple[Any, ...]]], device: Device) -> None:
    """Requests that are not cancelled have the texts that the plain loop gives; each ends once."""
    script, cancelled = commands_of(blocks)
    expected = run(script, Device(device.config), overlapped=False)
    steps = run(script, device)
    refused = {each.handle for step in steps for each in step.events.failed}
    before = {each.handle for step in expected for each in step.events.failed}
    plain = {key: text for key, text in texts(expected).items() if key[0] not in refused}
    found = {key: text for key, text in texts(steps).items() if key[0] not in before}
    for key in plain.keys() | found.keys():
        if key[0] in cancelled:
            ours, theirs = found.get(key, []), plain.get(key, [])
            shorter = min(len(ours), len(theirs))
            assert ours[:shorter] == theirs[:shorter]
        else:
            assert found[key] == plain[key]
    ends = [each.handle for step in steps for each in step.events.finished]
    assert len(ends) == len(set(ends)), "a request that has ended twice"
    submitted = {
        each.request.handle for block in script for each in block if isinstance(each, Submit)
    }
    assert set(ends) | refused == submitted


@settings(max_examples=35, deadline=None, derandomize=True, database=None)
@given(blocks=SCRIPTS)
def test_the_same_texts_as_the_plain_loop(blocks: list[list[tuple[Any, ...]]]) -> None:
    check_same(blocks, Device(limits()))


@settings(max_examples=35, deadline=None, derandomize=True, database=None)
@given(blocks=SCRIPTS, fails=st.frozensets(st.integers(0, 25), max_size=8), fits=st.integers(1, 4))
def test_steps_that_find_no_memory_change_no_text(
    blocks: list[list[tuple[Any, ...]]], fails: frozenset[int], fits: int
) -> None:
    check_same(blocks, Device(limits(), fits, fails))
