"""Going back through the last minutes."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pagedd.protocol import Event, State
from pagedd_tui.model import Model
from pagedd_tui.ring import KEY_EVERY_S, Ring
from tests.tui.truth import STEPS, Step, history

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(-7, 7)),
        st.tuples(st.just("seek"), st.integers(-40, 40)),
        st.tuples(st.just("add"), st.integers(1, 9)),
        st.tuples(st.just("end"), st.just(0)),
        st.tuples(st.just("hold"), st.just(0)),
    ),
    max_size=30,
)
CHANGE = Step(False, [(1, 0, 5)], [], False, [(0, 1, 1)], [(1, 1)])


def pictures(frames: list[State]) -> list[State]:
    """What is to be seen after each frame."""
    model, seen = Model(), []
    for frame in frames:
        model.take(frame)
        seen.append(model.keyframe())
    return seen


def long_history(steps: list[Step], times: int = 20) -> list[State]:
    _, frames = history((steps * times)[:60])
    return frames


def filled(frames: list[State], apart: float, ring: Ring | None = None) -> Ring:
    ring = Ring() if ring is None else ring
    for number, frame in enumerate(frames):
        ring.add(frame, 100.0 + number * apart)
    return ring


@given(STEPS, MOVES, st.sampled_from([0.25, 1.0, 4.0]))
def test_every_frame_is_found_again(
    steps: list[Step], moves: list[tuple[str, int]], apart: float
) -> None:
    frames = long_history(steps)
    seen = pictures(frames)
    added = len(frames) // 2 + 1
    ring, place = filled(frames[:added], apart), None
    for move, by in moves:
        newest = added - 1
        at = newest if place is None else place
        match move:
            case "step":
                ring.step(by)
                place = min(max(at + by, 0), newest)
            case "seek":
                ring.seek(by)
                target = int(at + by / apart // 1)
                if target == at and by:
                    target += 1 if by > 0 else -1
                place = min(max(target, 0), newest) if by else place
            case "add":
                for number, frame in enumerate(frames[added : added + by], added):
                    ring.add(frame, 100.0 + number * apart)
                added = min(added + by, len(frames))
            case "end":
                ring.end()
                place = None
            case "hold":
                ring.hold()
                place = at
        shown = added - 1 if place is None else place
        assert ring.live == (place is None)
        assert ring.received == 100.0 + shown * apart
        assert ring.position == (added - 1 - shown) * apart
        assert ring.model_at().keyframe() == seen[shown]
    assert ring.span == (added - 1) * apart


def test_it_keeps_its_minutes_and_no_more() -> None:
    frames = long_history([CHANGE] * 60)
    ring = filled(frames, 2.0, Ring(minutes=0.5))
    assert 30.0 <= ring.span <= 30.0 + 2 * KEY_EVERY_S
    ring.step(-1000)
    assert ring.model_at().keyframe() == pictures(frames)[-1 - round(ring.span / 2.0)]


def test_it_keeps_within_its_bytes_also_when_time_stands_still() -> None:
    frames = long_history([CHANGE] * 60)
    most = 12 * len(msgspec.msgpack.encode(frames[0]))
    ring = Ring(max_bytes=most)
    for frame in frames:
        ring.add(frame, 1.0)
        assert 0 < ring.size <= most
    ring.step(-5)
    assert ring.model_at().keyframe() == pictures(frames)[-6]


def test_what_is_looked_at_when_it_is_dropped_gives_way_to_the_oldest() -> None:
    frames = long_history([CHANGE] * 60)
    ring = filled(frames[:20], 1.0, Ring(minutes=0.2))
    ring.step(-1000)
    for number, frame in enumerate(frames[20:], 20):
        ring.add(frame, 100.0 + number)
    assert not ring.live
    assert ring.position == ring.span
    assert ring.model_at().keyframe() == pictures(frames)[-1 - round(ring.span)]


def test_frames_that_do_not_follow_are_left_out() -> None:
    frames = long_history([CHANGE] * 12)
    ring = filled([*frames[:3], *frames[5:]], 1.0)
    assert ring.model_at().keyframe() == pictures(frames)[2]
    ring.add(msgspec.structs.replace(frames[0], frame=70), 500.0)
    assert ring.model_at().frame == 70
    ring.seek(-1)  # into the gap, so to what was shown then
    assert ring.model_at().frame == 3
    ring.seek(10)
    assert ring.model_at().frame == 70


def test_events_are_those_of_the_time_that_is_shown() -> None:
    ring = Ring()
    assert (ring.events(), ring.status(), ring.span, ring.position) == ([], None, 0.0, 0.0)
    ring.step(-1)
    ring.seek(-5)
    assert ring.live
    assert ring.model_at().frame == 0
    for number, frame in enumerate(long_history([CHANGE])[:10]):
        ring.add(Event(at=number, kind="evicted", text=f"{number} pages."), number - 0.5)
        ring.add(frame, float(number))
    ring.step(-7)
    assert [event.at for event in ring.events()] == [0, 1, 2]
    ring.end()
    assert len(ring.events()) == 10
    ring.clear()
    assert (ring.events(), ring.live, ring.size, ring.model_at().frame) == ([], True, 0, 0)
