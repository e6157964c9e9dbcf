"""The overlapped loop in this process: the real scheduler, a device that answers late."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedd.core.plan import NoMemory, StepPlan, StepResult
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.engine.loop import serve
from pagedd.engine.main import Engine, run_engine
from pagedd.engine.messages import (
    CancelRequest,
    Command,
    EngineConfig,
    Ready,
    Reprioritize,
    Shutdown,
    Step,
    Submit,
)
from pagedd.engine.overlap import serve_overlapped
from tests.core.symbolic import EOS, SymbolicRunner
from tests.engine.test_loop import Script, ScriptedLink


def limits(**changes: object) -> SchedulerConfig:
    values: dict[str, object] = {
        "num_pages": 9,
        "page_size": 4,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 8,
        "max_model_len": 30,
        "max_queue": 8,
        "eos_ids": EOS,
        "num_host_pages": 4,
        "page_bytes": 4_000_000,
    }
    return SchedulerConfig(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Device:
    """Carries plans out when they are launched, and tells what they drew when they are collected.

    The steps of the numbers ``fails`` find no memory for more than ``fits`` rows.
    """

    config: SchedulerConfig
    fits: int = 10**6
    fails: frozenset[int] = frozenset()
    order: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # of the steps that found no memory

    def __post_init__(self) -> None:
        self.memory = SymbolicRunner(self.config)
        self.phases: dict[str, float] = {}
        self._attempts = itertools.count()

    def execute(self, plan: StepPlan) -> StepResult:
        if next(self._attempts) in self.fails and plan.num_tokens > self.fits:
            self.rows.append(plan.num_tokens)
            self.memory.step += 1
            self.memory._move(self.memory.move(plan), self.memory.host, self.memory.cells)
            raise NoMemory
        result = self.memory.execute(plan)
        for sampled in result.sampled:
            if sampled.token < 0:
                raise AssertionError("these histories have valid logits only")
        return result

    def launch(self, plan: StepPlan) -> tuple[int, StepResult]:
        self.order.append(f"launch {plan.step}")
        return plan.step, self.execute(plan)

    def collect(self, flight: tuple[int, StepResult]) -> tuple[StepResult, dict[str, float]]:
        self.order.append(f"collect {flight[0]}")
        return flight[1], {"execute": 1e-3}


def scheduler(config: SchedulerConfig) -> Scheduler:
    """One that audits itself after whatever is done to it."""
    found = Scheduler(config, key=b"k")
    for name in ("plan", "launched", "collected", "abandoned", "commit", "cancel"):
        setattr(found, name, _audited(found, getattr(found, name)))
    return found


def _audited(found: Scheduler, method: object) -> object:
    def run(*arguments: object) -> object:
        result = method(*arguments)  # type: ignore[operator]
        found.audit()
        return result

    return run


def run(script: Script, device: Device, *, overlapped: bool = True) -> list[Step]:
    """Serve the script, then whatever is left of it; the reports."""
    link = ScriptedLink([*script, *([] for _ in range(600))])
    loop = serve_overlapped if overlapped else serve
    clock = itertools.count()
    loop(link, scheduler(device.config), device, lambda: next(clock) / 1000)  # type: ignore[operator]
    return [report for report in link.reports if isinstance(report, Step)]


def texts(steps: list[Step]) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        for token in step.events.tokens:
            found.setdefault((token.handle, token.choice), []).append(token.token)
    return found


def submit(handle: int, length: int = 5, priority: int = 0, **params: object) -> Submit:
    sampling = SamplingParams(**({"max_tokens": 6, "seed": handle * 16} | params))  # type: ignore[arg-type]
    prompt = tuple(handle + i for i in range(1, length + 1))
    return Submit(Request(handle, prompt, sampling, priority))


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
    ready = Ready(
        model="none",
        text_dir="",
        device="fake",
        dtype="float32",
        vocab_size=11,
        max_model_len=30,
        page_size=4,
        num_pages=9,
        num_host_pages=4,
        max_num_seqs=4,
        max_num_batched_tokens=8,
        eos_ids=(0,),
        notes=(),
    )
    link = ConfiguredLink([[submit(1, max_tokens=2, ignore_eos=True)], [], [], []])
    engine = Engine(ready, scheduler(device.config), device)  # type: ignore[arg-type]
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


def commands_of(blocks: list[list[tuple[object, ...]]]) -> tuple[Script, set[int]]:
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
                    submit(handle, length, priority, max_tokens=tokens, n=n, ignore_eos=ends)  # type: ignore[arg-type]
                )
            elif kind == "cancel":
                commands.append(CancelRequest(values[0]))  # type: ignore[arg-type]
                cancelled.add(values[0])  # type: ignore[arg-type]
            else:
                commands.append(Reprioritize(*values))  # type: ignore[arg-type]
        script.append(commands)
    return script, cancelled


def check_same(blocks: list[list[tuple[object, ...]]], device: Device) -> None:
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
def test_the_same_texts_as_the_plain_loop(blocks: list[list[tuple[object, ...]]]) -> None:
    check_same(blocks, Device(limits()))


@settings(max_examples=35, deadline=None, derandomize=True, database=None)
@given(blocks=SCRIPTS, fails=st.frozensets(st.integers(0, 25), max_size=8), fits=st.integers(1, 4))
def test_steps_that_find_no_memory_change_no_text(
    blocks: list[list[tuple[object, ...]]], fails: frozenset[int], fits: int
) -> None:
    check_same(blocks, Device(limits(), fits, fails))


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_step_that_finds_no_memory_is_made_smaller_by_preemption(overlapped: bool) -> None:
    device = Device(limits(num_pages=40), fits=2, fails=frozenset({4}))
    script: Script = [[submit(i, 2, max_tokens=8, ignore_eos=True) for i in range(1, 5)]]
    steps = run(script, device, overlapped=overlapped)
    assert device.rows == [4]
    assert [each for step in steps for each in step.events.shrunk] == [(4, 2)]
    gave_way = [each for step in steps for each in step.events.preempted]
    assert [each.handle for each in gave_way] == [4, 3], "the policy chooses"
    assert {each.lack for each in gave_way} == {"memory"}
    assert [len(text) for text in texts(steps).values()] == [8] * 4


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_long_prompt_goes_on_in_smaller_chunks(overlapped: bool) -> None:
    device = Device(limits(), fits=2, fails=frozenset(range(9)))
    steps = run([[submit(1, 16, max_tokens=2, ignore_eos=True)]], device, overlapped=overlapped)
    assert device.rows[:2] == [8, 4]
    assert not [each for step in steps for each in step.events.preempted]
    assert len(texts(steps)[1, 0]) == 2


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_row_that_never_finds_memory_fails_its_request_and_the_next_go_on(
    overlapped: bool,
) -> None:
    device = Device(limits(), fits=0, fails=frozenset(range(4)))
    script: Script = [[submit(1, 8)], *([] for _ in range(12)), [submit(2, 3, ignore_eos=True)]]
    steps = run(script, device, overlapped=overlapped)
    assert device.rows == [8, 4, 2, 1]
    failed = [each for step in steps for each in step.events.failed]
    assert [(each.handle, each.code) for each in failed] == [(1, "out_of_memory")]
    assert len(texts(steps)[2, 0]) == 6


def test_after_a_while_steps_may_be_large_again() -> None:
    device = Device(limits(max_model_len=1000, num_pages=250), fits=4, fails=frozenset({0}))
    script: Script = [[submit(1, 8, max_tokens=150, ignore_eos=True)]]
    script += [[] for _ in range(100)] + [[submit(2, 8, max_tokens=1)]]
    link = ScriptedLink([*script, *([] for _ in range(100))])
    found = scheduler(device.config)
    serve_overlapped(link, found, device, lambda: 0.0)
    assert found._allowance.rows == 8
