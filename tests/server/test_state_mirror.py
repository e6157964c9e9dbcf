"""Frames of the state feed: what they hold, how large they are, who gets which."""

from __future__ import annotations

import random

import anyio
import msgspec

from pagedd.core.watch import Changes, SequenceRow
from pagedd.protocol import SUBPROTOCOL_MSGPACK, Counters, State
from pagedd.server.decode import Codec
from pagedd.server.outbox import Outbox
from pagedd.server.state_feed import KEYFRAME_EVERY_S, LAG_BYTES, SETTLING_S, StateFeed
from pagedd.server.state_mirror import Dirt, StateMirror
from pagedd_tui.model import Model

COUNTERS = Counters(8, 3, 1, 0.93, 0.4, 0.35, 412.5, 12, {"plan": 0.1, "execute": 20.25})


def row(handle: int, state: str = "decoding") -> SequenceRow:
    return SequenceRow(handle, 0, state, 0, 812, 133, 945, 30, 512, 1234.5)


def whole(pages: int, *rows: SequenceRow) -> Changes:
    owners = [(rows[0].handle, 0)] * pages if rows else [None] * pages
    return Changes(True, [], bytes([1 if rows else 0] * pages), owners, [], b"\0" * 8, [*rows], [])


def change(pages: dict[int, int], owner: int | None, *rows: SequenceRow) -> Changes:
    owners = [None if owner is None else (owner, 0)] * len(pages)
    ids = sorted(pages)
    return Changes(False, ids, bytes(pages[i] for i in ids), owners, [], b"", [*rows], [])


def name_of(handle: int) -> str:
    return f"request-{handle}"


def test_a_frame_with_500_changed_pages_takes_less_than_4_kb() -> None:
    mirror, dirt = StateMirror(name_of), Dirt(everything=False)
    rows = [row(handle) for handle in range(1, 9)]
    mirror.take(whole(8192, *rows))
    chosen = random.Random(1).sample(range(8192), 500)
    moved = Changes(
        False,
        sorted(chosen),
        bytes(500),
        [(handle % 8 + 1, 0) for handle in range(500)],
        [],
        b"",
        rows,
        [],
    )
    mirror.take(moved)
    dirt.add(moved)
    assert not mirror.is_large(dirt)
    frame = mirror.change(7, 1.7e9 + 0.125, dirt, COUNTERS)
    assert len(msgspec.msgpack.encode(frame)) <= 4096


def test_from_many_changes_on_a_keyframe_is_smaller_and_is_sent() -> None:
    mirror = StateMirror(name_of)
    mirror.take(whole(1000, row(1)))
    for count in (1, 100, 300, 700, 900):
        dirt = Dirt(everything=False, pages=set(range(count)))
        sizes = [
            len(msgspec.msgpack.encode(frame))
            for frame in (mirror.change(1, 1.0, dirt, COUNTERS), mirror.keyframe(1, 1.0, COUNTERS))
        ]
        assert mirror.is_large(dirt) == (sizes[0] > sizes[1])


class Feed:
    """A feed with a clock of its own; what it tells goes into outboxes that nobody empties."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.counters = COUNTERS
        self.watched: list[bool] = []
        self.feed = StateFeed(
            name_of, lambda: self.counters, self.watched.append, lambda: 0.0, lambda: self.now
        )

    def outbox(self) -> Outbox:
        def full() -> None:
            raise AssertionError("a feed never fills an outbox")

        return Outbox(Codec(SUBPROTOCOL_MSGPACK), 1 << 30, full)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for rate in list(self.feed._rates.values()):
            if rate.due <= self.now:
                self.feed._tell(rate)


def frames_of(outbox: Outbox) -> list[State]:
    """Takes out what waits."""
    frames = []
    while outbox._entries:
        data = outbox._take()
        assert data is not None
        frames.append(msgspec.msgpack.decode(data, type=State))
    return frames


def kinds(frames: list[State]) -> list[str]:
    return ["key" if frame.key else "change" for frame in frames]


def test_the_engine_collects_only_while_somebody_looks() -> None:
    world = Feed()
    one, two = world.outbox(), world.outbox()
    world.feed.subscribe(one, 10)
    world.feed.subscribe(two, 4)
    world.feed.unsubscribe(one)
    world.feed.unsubscribe(one)
    assert world.watched == [True]
    world.feed.unsubscribe(two)
    assert world.watched == [True, False]


def test_each_rate_gets_frames_of_its_own_and_all_of_one_rate_the_same() -> None:
    world = Feed()
    fast, same, slow = world.outbox(), world.outbox(), world.outbox()
    for outbox, hz in ((fast, 10), (same, 10), (slow, 2)):
        world.feed.subscribe(outbox, hz)
    world.feed.step(whole(100, row(1)))
    for number in range(10):
        world.feed.step(change({number: 2}, 1, row(1)))
        world.pass_time(0.1)
    got = [frames_of(outbox) for outbox in (fast, same, slow)]
    assert got[0] == got[1]
    assert kinds(got[0]) == ["key"] + ["change"] * 9
    assert kinds(got[2]) == ["key", "change"]
    models = []
    for frames in got[0], got[2]:
        model = Model()
        for frame in frames:
            model.take(frame)
        models.append(model)
    assert models[0].pages.counts == [0, 90, 10, 0]
    assert models[1].pages.counts == [0, 94, 6, 0]  # 0.4 s behind


def test_who_lags_misses_frames_and_goes_on_with_a_keyframe() -> None:
    world = Feed()
    lazy, other = world.outbox(), world.outbox()
    world.feed.subscribe(lazy, 10)
    world.feed.subscribe(other, 10)
    world.feed.step(whole(LAG_BYTES + 1, row(1)))
    world.pass_time(0.1)
    frames_of(other)
    for number in range(3):
        world.feed.step(change({number: 2}, 1, row(1)))
        world.pass_time(0.1)
    assert kinds(frames_of(other)) == ["change"] * 3
    (before,) = frames_of(lazy)
    world.pass_time(0.1)
    (after,) = frames_of(lazy)
    assert (before.key, after.key) == (True, True)
    assert after.frame > before.frame + 1
    assert after.pages.cells[:3] == b"\2\2\2"
    assert frames_of(other) == []  # had it all already


def test_who_keeps_up_misses_no_number_because_of_who_does_not() -> None:
    world = Feed()
    lazy, other = world.outbox(), world.outbox()
    world.feed.subscribe(lazy, 10)
    world.feed.subscribe(other, 10)
    world.feed.step(whole(LAG_BYTES + 1, row(1)))
    world.pass_time(0.1)
    numbers = [frame.frame for frame in frames_of(other)]
    for number in range(6):
        if number % 2:
            world.feed.step(change({number: 2}, 1, row(1)))
        world.pass_time(0.1)  # the lazy one is still to get a keyframe, so there is always news
        numbers += [frame.frame for frame in frames_of(other)]
    assert numbers == [1, 2, 3, 4]
    frames_of(lazy)
    world.pass_time(0.1)
    (caught_up,) = frames_of(lazy)
    assert (caught_up.key, caught_up.frame) == (True, 4)


def test_a_keyframe_comes_again_after_a_while_and_when_the_engine_is_another() -> None:
    world = Feed()
    outbox = world.outbox()
    world.feed.subscribe(outbox, 10)
    world.feed.step(whole(100, row(1)))
    world.pass_time(0.1)
    world.feed.step(change({5: 2}, 1, row(1)))
    world.pass_time(0.1)
    world.feed.step(change({6: 2}, 1, row(1)))
    world.pass_time(KEYFRAME_EVERY_S)
    assert kinds(frames_of(outbox)) == ["key", "change", "key"]
    world.feed.engine_lost()
    world.pass_time(1.0)
    assert frames_of(outbox) == []
    world.feed.engine_serves()
    assert world.watched == [True, True]
    world.feed.step(change({6: 2}, 1))  # of a look that the first picture is still to come after
    world.feed.step(whole(50))
    world.pass_time(1.0)
    (frame,) = frames_of(outbox)
    assert (frame.key, frame.pages.n) == (True, 50)


def test_nothing_new_is_not_told_but_falling_rates_are() -> None:
    world = Feed()
    outbox = world.outbox()
    world.feed.subscribe(outbox, 10)
    world.feed.step(whole(100))
    world.pass_time(0.1)
    world.pass_time(1.0)
    assert len(frames_of(outbox)) == 1
    world.counters = msgspec.structs.replace(COUNTERS, tokens_per_second=0.0)
    world.pass_time(1.0)
    (frame,) = frames_of(outbox)
    assert frame.counters.tokens_per_second == 0.0
    assert (frame.key, frame.pages.cells, frame.sequences) == (False, b"", [])


def test_it_looks_again_soon_until_every_rate_has_fallen() -> None:
    world = Feed()
    world.feed.subscribe(world.outbox(), 10)
    world.feed.step(whole(100))
    falling = msgspec.structs.replace(COUNTERS, step_ms={}, tokens_per_second=0.4)
    rested = msgspec.structs.replace(falling, tokens_per_second=0.0)
    for counters, soon in ((COUNTERS, True), (falling, True), (rested, False)):
        world.counters = counters
        world.pass_time(0.1)
        rest = world.feed._rest()
        assert rest is not None
        assert (rest <= SETTLING_S) == soon


def test_it_runs_by_itself() -> None:
    """The task sends what is due and rests in between."""

    async def main() -> list[State]:
        world, frames = Feed(), list[State]()
        feed = StateFeed(name_of, lambda: COUNTERS, world.watched.append, lambda: 0.0)
        outbox = world.outbox()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed.run)
                feed.subscribe(outbox, 30)
                feed.step(whole(100, row(1)))
                while len(frames) < 3:
                    await anyio.sleep(0)
                    if got := frames_of(outbox):
                        frames += got
                        feed.step(change({len(frames): 2}, 1, row(1)))
                tasks.cancel_scope.cancel()
        return frames

    assert kinds(anyio.run(main)) == ["key", "change", "change"]
