"""A daemon as a source, with everything that a feed can do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest

from pagedd.errors import RequestNotFound, Unreachable, UsageError
from pagedd.protocol import Event, Hello, State, Status
from pagedd_tui.live import AGAIN_S, HISTORY, STATUS_S, LiveSource
from pagedd_tui.model import Model
from pagedd_tui.source import Item, Lost
from tests.tui.peer import CLOSE, Act, Peer
from tests.tui.truth import Step, history

pytestmark = pytest.mark.anyio

CHANGE = Step(False, [(1, 0, 5)], [], False, [(0, 1, 1)], [(1, 1)])
FRAMES = history([CHANGE] * 9)[1]  # numbers 1 to 10


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def peer(home: Path) -> Peer:
    return Peer(home / "pagedd.sock")


def key(number: int) -> State:
    return msgspec.structs.replace(FRAMES[0], frame=number)


def change(number: int) -> State:
    return msgspec.structs.replace(FRAMES[1], frame=number)


class Naps:
    """Sleeps that take no time, but that from one status to the next, which ends hardly ever."""

    def __init__(self, status_s: float = 1000.0) -> None:
        self.taken: list[float] = []
        self._status_s = status_s

    async def __call__(self, seconds: float) -> None:
        if seconds == STATUS_S:
            await anyio.sleep(self._status_s)
            return
        self.taken.append(seconds)
        await anyio.lowlevel.checkpoint()


def half() -> float:
    return 0.5


def source_of(peer: Peer, naps: Naps, random: Callable[[], float] = half) -> LiveSource:
    return LiveSource(peer.url, peer.key, 20.0, sleep=naps, random=random)


async def until(source: LiveSource, enough: Callable[[list[Item]], bool]) -> list[Item]:
    """The items up to the one with which there are enough; all frames among them fold."""
    seen: list[Item] = []
    model = Model()
    with anyio.fail_after(10):
        async with aclosing(source.items()) as items:
            async for item in items:
                seen.append(item)
                if isinstance(item, State):
                    model.take(item)
                if enough(seen):
                    break
    return seen


def up_to_frame(number: int) -> Callable[[list[Item]], bool]:
    def enough(seen: list[Item]) -> bool:
        return isinstance(seen[-1], State) and seen[-1].frame == number

    return enough


def numbers(items: list[Item]) -> list[int]:
    return [item.frame for item in items if isinstance(item, State)]


def lost(items: list[Item]) -> list[Lost]:
    return [item for item in items if isinstance(item, Lost)]


async def test_it_subscribes_to_all_and_asks_for_the_status(peer: Peer) -> None:
    peer.acts = [[key(1), change(2)]]
    peer.history = [Event(at=1.0, kind="evicted", text="1 page.")]
    async with peer.serving():
        source = source_of(peer, Naps())

        def enough(seen: list[Item]) -> bool:
            return {Hello, State, Event, Status} <= {type(item) for item in seen}

        items = await until(source, enough)
        assert isinstance(items[0], Hello)
        state, events = sorted(peer.commands("subscribe"), key=lambda each: -len(each["topic"]))
        if state["topic"] == "events":
            state, events = events, state
        assert (state["hz"], events["history"]) == (20.0, HISTORY)


async def test_commands_name_the_handle(peer: Peer) -> None:
    source = source_of(peer, Naps())
    for command in (source.explain(7), source.cancel(7), source.reprioritize(7, 1)):
        with pytest.raises(Unreachable, match="no connection"):
            await command
    peer.acts = [[key(1)]]
    async with peer.serving(), aclosing(source.items()) as items:
        while not isinstance(await anext(items), State):
            pass
        assert (await source.explain(7)).id == "#7"
        await source.cancel(7)
        await source.reprioritize(7, -3)
        with pytest.raises(RequestNotFound, match="no request #404"):
            await source.cancel(404)
    asked = peer.commands("explain", "cancel", "reprioritize")
    assert [frame["id"] for frame in asked] == ["#7", "#7", "#7", "#404"]
    assert asked[2]["priority"] == -3


WEATHER = {"type": "weather", "frame": 3, "at": "noon"}
WRONG_TYPES = msgspec.to_builtins(change(3)) | {"counters": "many"}
OWNERLESS = msgspec.structs.replace(change(3), owners=[])


@pytest.mark.parametrize(
    ("act", "numbers_seen"),
    [
        ([change(4)], [1, 2]),
        ([change(2)], [1, 2]),
        ([OWNERLESS, change(4)], [1, 2]),
        ([WRONG_TYPES, change(4)], [1, 2]),
        ([WEATHER, change(3), WEATHER, change(5)], [1, 2, 3]),
        ([key(7), change(8), change(3)], [1, 2, 7, 8]),
    ],
    ids=["missing", "twice", "broken", "wrong types", "unknown kinds", "back"],
)
async def test_after_a_gap_it_subscribes_again(
    peer: Peer, act: Act, numbers_seen: list[int]
) -> None:
    peer.acts = [[key(1), change(2), *act], [change(5), change(6), key(20), change(21)]]
    naps = Naps()
    async with peer.serving():
        items = await until(source_of(peer, naps), up_to_frame(21))
    assert numbers(items) == [*numbers_seen, 20, 21]
    assert not lost(items)
    assert naps.taken == [AGAIN_S]
    topics = [(frame["type"], frame["topic"]) for frame in peer.asked if "topic" in frame]
    states = [kind for kind, topic in topics if topic == "state"]
    assert states[:3] == ["subscribe", "unsubscribe", "subscribe"]


async def test_a_feed_without_a_keyframe_is_asked_for_again(peer: Peer) -> None:
    peer.acts = [[change(number) for number in range(2, 200)], [key(300)]]
    async with peer.serving():
        assert numbers(await until(source_of(peer, Naps()), up_to_frame(300))) == [300]


@pytest.mark.parametrize(("end", "says"), [(b"\xc1", "is no pagedd"), (CLOSE, "was closed")])
async def test_a_broken_connection_is_made_again(peer: Peer, end: bytes | str, says: str) -> None:
    peer.acts = [[key(1), change(2), end], [key(1), change(2), change(3)]]
    peer.hellos = [peer.hello, peer.hello | {"boot_id": "another"}]
    naps = Naps()
    async with peer.serving():
        items = await until(source_of(peer, naps), up_to_frame(3))
    hellos = [item.boot_id for item in items if isinstance(item, Hello)]
    assert hellos == ["demo", "another"]
    (gone,) = lost(items)
    assert says in gone.reason
    after = items[items.index(gone) + 1 :]
    assert isinstance(after[0], Hello)
    assert numbers(after) == [1, 2, 3]
    assert naps.taken == [gone.retry_s] == [0.75]


async def test_another_version_and_a_missing_key_are_said(peer: Peer) -> None:
    peer.hello |= {"version": 2}
    async with peer.serving():
        items = await until(source_of(peer, Naps()), lambda seen: len(lost(seen)) == 2)
        assert all("speaks version 2" in each.reason for each in lost(items))
        source = source_of(peer, Naps())
        peer.key = "secret"
        items = await until(source, lambda seen: len(lost(seen)) == 1)
        assert "--api-key" in lost(items)[0].reason
        peer.hello |= {"version": 1}
        peer.acts = [[key(1)]]
        assert not lost(await until(source_of(peer, Naps()), up_to_frame(1)))


async def test_a_daemon_without_the_feed_is_too_old(peer: Peer) -> None:
    peer.hello |= {"features": ["generate", "events"]}
    async with peer.serving():
        items = await until(source_of(peer, Naps()), lambda seen: len(seen) == 2)
    assert ["too old" in each.reason for each in lost(items)] == [True, True]


@pytest.mark.parametrize(
    ("luck", "pauses"), [(0.0, [0.5] * 6), (0.9, [0.95, 1.85, 3.65, 4.55, 4.55, 4.55])]
)
async def test_pauses_grow_while_nobody_answers(
    peer: Peer, luck: float, pauses: list[float]
) -> None:
    naps = Naps()
    source = source_of(peer, naps, lambda: luck)
    items = await until(source, lambda seen: len(seen) == len(pauses))
    assert [each.retry_s for each in lost(items)] == pytest.approx(pauses)
    assert all("no daemon at" in each.reason for each in lost(items))
    peer.acts = [[key(1), CLOSE]]
    async with peer.serving():
        items = await until(source, lambda seen: len(lost(seen)) == 1)
        assert lost(items)[0].retry_s == pytest.approx(pauses[0])


async def test_a_bad_address_is_the_users_mistake() -> None:
    with pytest.raises(UsageError, match="not an address"):
        await anext(LiveSource("nonsense").items())


async def test_a_reader_that_lags_gets_the_latest_and_is_told_what_it_missed(peer: Peer) -> None:
    many = 5000
    peer.history = [Event(at=1.0, kind="evicted", text="a page. " * 30) for _ in range(many)]
    peer.acts = [[key(1), *map(change, range(2, many))], [key(9000), change(9001)]]
    model, told, missed = Model(), 0, 0
    source = source_of(peer, Naps(status_s=0.01))
    with anyio.fail_after(20):
        async with peer.serving(), aclosing(source.items()) as items:
            assert isinstance(await anext(items), Hello)
            while not peer.commands("status"):  # which comes after all of that
                await anyio.wait_all_tasks_blocked()
            while model.frame != 9001 or told + missed < many:
                match await anext(items):
                    case State() as frame:
                        model.take(frame)
                    case Event(kind="missed", count=int(count)):
                        missed += count
                    case Event():
                        told += 1
    assert told + missed == many
    assert missed > 0


async def test_the_connection_ends_when_the_reader_leaves(peer: Peer) -> None:
    peer.acts = [[key(1)]]
    async with peer.serving():
        _ = await until(source_of(peer, Naps()), up_to_frame(1))
        with anyio.fail_after(5):
            while peer.open:
                await anyio.wait_all_tasks_blocked()


async def test_waiting_for_an_item_may_be_given_up(peer: Peer) -> None:
    """A reader may leave in the middle of waiting, inside a scope of its own."""
    peer.acts = [[key(1)]]
    async with peer.serving():
        items = source_of(peer, Naps()).items()
        while not isinstance(await anext(items), State):
            pass
        gave_up = False
        for _ in range(5):
            with anyio.move_on_after(0.01) as scope:
                _ = [item async for item in items]
            gave_up |= scope.cancelled_caught
        assert gave_up


async def test_at_another_rate_it_subscribes_again(peer: Peer) -> None:
    peer.acts = [[key(1), change(2), change(3)], [key(20), change(21)]]
    source = source_of(peer, Naps())
    seen: list[Item] = []
    async with peer.serving(), aclosing(source.items()) as items:
        with anyio.fail_after(10):
            while not up_to_frame(21)(seen or [Lost("", 0.0)]):
                seen.append(await anext(items))
                if up_to_frame(1)(seen):
                    source.hz = 5.0
    rates = [each["hz"] for each in peer.commands("subscribe") if each["topic"] == "state"]
    assert rates == [20.0, 5.0]


async def test_where_pictures_are_rare_it_asks_less_often_how_the_daemon_is(peer: Peer) -> None:
    naps = Naps()
    source = source_of(peer, naps)
    source.hz = 0.5
    async with peer.serving():
        await until(source, lambda seen: sum(isinstance(each, Status) for each in seen) == 2)
    assert 1 / source.hz in naps.taken
