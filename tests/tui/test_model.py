"""Folding the frames of the state feed into a picture."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd.protocol import PageCells, State
from pagedd_tui.model import BrokenFrame, Model
from tests.tui.truth import NUM_HOST_PAGES, NUM_PAGES, STEPS, Step, history, row


def folded(frames: list[State]) -> Model:
    model = Model()
    for frame in frames:
        model.take(frame)
    return model


@given(STEPS)
def test_keyframes_and_changes_add_up_to_the_last_picture_alone(steps: list[Step]) -> None:
    truth, frames = history(steps)
    model = folded(frames)
    assert model.keyframe() == truth.whole()
    assert folded([truth.whole()]).keyframe() == model.keyframe()
    assert model.pages.counts == [truth.states.count(state) for state in range(4)]
    assert model.host.counts == [truth.host.count(state) for state in range(4)]


@given(STEPS, st.data())
def test_a_missing_frame_is_noticed_and_the_next_keyframe_mends_it(
    steps: list[Step], data: st.DataObject
) -> None:
    truth, frames = history([*steps, Step(False, [(1, 0, 5)], [], False, [(0, 1, 1)], [])])
    lost = data.draw(st.integers(1, len(frames) - 1))
    model = folded(frames[:lost])
    before, mended = model.keyframe(), False
    for frame in frames[lost + 1 :]:
        mended |= frame.key
        if not mended:
            assert not model.follows(frame)
            with pytest.raises(BrokenFrame, match="does not follow"):
                model.take(frame)
            assert model.keyframe() == before
        else:
            model.take(frame)
    model.take(truth.whole())
    assert model.keyframe() == truth.whole()


def broken(frame: State, how: int) -> State:
    """``frame``, made so that it contradicts itself."""
    pages, size = frame.pages, len(frame.pages.cells)
    match how:
        case 0:
            return msgspec.structs.replace(frame, owners=[*frame.owners, 0])
        case 1:
            wrong = [len(frame.sequences) + 1] * size
            return msgspec.structs.replace(frame, owners=wrong)
        case 2:
            wrong_cells = PageCells(pages.cells)
        case 3:
            wrong_cells = PageCells(pages.cells, ids=[NUM_PAGES + each for each in range(size)])
        case _:
            wrong_cells = PageCells(pages.cells, ids=[-1 - each for each in range(size)])
    return msgspec.structs.replace(frame, pages=wrong_cells)


@given(STEPS, st.integers(0, 4))
def test_a_frame_that_contradicts_itself_changes_nothing(steps: list[Step], how: int) -> None:
    last = Step(False, [(1, 0, 5)], [], False, [(0, 1, 1), (3, 2, 1)], [(0, 1)])
    truth, frames = history([*steps, last])
    model = folded(frames[:-1])
    before = model.keyframe()
    with pytest.raises(BrokenFrame):
        model.take(broken(frames[-1], how))
    assert model.keyframe() == before
    model.take(frames[-1])
    assert model.keyframe() == truth.whole()


@given(STEPS)
def test_a_broken_host_page_changes_no_page_of_the_device(steps: list[Step]) -> None:
    _, frames = history([*steps, Step(False, [], [], False, [(0, 1, 0)], [(0, 1)])])
    model = folded(frames[:-1])
    before = model.keyframe()
    wrong = PageCells(frames[-1].host_pages.cells, ids=[NUM_HOST_PAGES])
    with pytest.raises(BrokenFrame, match="pages that there are not"):
        model.take(msgspec.structs.replace(frames[-1], host_pages=wrong))
    assert model.keyframe() == before


def test_nothing_follows_before_the_first_keyframe() -> None:
    _, frames = history([Step(False, [], [], False, [], [])])
    assert not Model().follows(frames[1])
    assert Model().follows(frames[0])


def test_a_copy_goes_its_own_way() -> None:
    truth, frames = history([Step(False, [(1, 0, 5)], [], False, [(0, 1, 1)], [])])
    model = folded(frames)
    copy = model.copy()
    model.take(truth.advance(Step(False, [(2, 0, 6)], [1], False, [(1, 1, 1)], [(0, 1)])))
    assert copy.keyframe() == folded(frames).keyframe() != model.keyframe()


def test_states_of_the_future_count_as_free() -> None:
    _, frames = history([])
    model = folded(frames)
    cells = PageCells(b"\x09", ids=[0])
    change = msgspec.structs.replace(frames[0], frame=2, key=False, pages=cells, owners=[0])
    model.take(msgspec.structs.replace(change, host_pages=PageCells(b"", ids=[])))
    assert model.pages.counts == [NUM_PAGES, 0, 0, 0]


def test_choices_that_go_on_come_again_after_gone() -> None:
    _, frames = history([Step(False, [(1, 0, 1), (1, 1, 2)], [], False, [], [])])
    model = folded(frames)
    again = msgspec.structs.replace(frames[-1], frame=3, gone=[1], sequences=[row(1, 1, 7)])
    model.take(again)
    assert list(model.rows) == [(1, 1)]
