"""Steps for which a device has no memory: smaller ones, preemption, and an end to it."""

from __future__ import annotations

import pytest

from pagedd.engine.overlap import serve_overlapped
from tests.engine.device import Device, limits, run, scheduler, submit, texts
from tests.engine.test_loop import Script, ScriptedLink


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
