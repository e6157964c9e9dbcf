"""A feed in a file: the same frames come out, whatever happened to the file."""

from __future__ import annotations

import resource
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedd.errors import PageddError, UsageError
from pagedd.protocol import Event, State
from pagedd_tui.demo import DemoSource
from pagedd_tui.demo_status import HELLO
from pagedd_tui.recording import MAGIC, VERSION, Recorder, RecordingSource
from pagedd_tui.source import Ended, Item, Lost
from tests.tui.paced import Sleeper
from tests.tui.truth import STEPS, Step, history


def played(path: Path, sleeper: Sleeper | None = None) -> list[Item]:
    """All that the recording gives."""

    async def play() -> list[Item]:
        pace = (sleeper or Sleeper()).pace
        return [item async for item in RecordingSource(path, pace).items()]

    return anyio.run(play)


def recorded(path: Path, items: list[Item]) -> list[int]:
    """Write ``items``, one each second; where in the file each of them ends."""
    path.unlink(missing_ok=True)
    sleeper, ends = Sleeper(), []
    with Recorder(path, sleeper.pace) as recorder:
        for item in items:
            recorder.write(item)
            ends.append(path.stat().st_size)
            sleeper.time += 1.0
    return ends


def some_items(steps: list[Step]) -> list[Item]:
    _, frames = history(steps)
    event = Event(at=1.5, kind="evicted", text="\x1b[2J 3 pages [bold]made room[/].", pages=3)
    return [HELLO, *frames, event, Lost("the daemon is gone", 0.5), HELLO, frames[0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@given(STEPS)
@settings(max_examples=50)
def test_what_was_recorded_is_played_again(folder: Path, steps: list[Step]) -> None:
    items = some_items(steps)
    recorded(folder / "a", items)
    sleeper = Sleeper()
    assert played(folder / "a", sleeper) == [*items, Ended()]
    assert sleeper.naps == [0.0, *[1.0] * (len(items) - 1)]


@given(STEPS, st.data())
@settings(max_examples=100)
def test_a_cut_file_plays_what_is_whole_and_says_so(
    folder: Path, steps: list[Step], data: st.DataObject
) -> None:
    items, path = some_items(steps), folder / "b"
    ends = recorded(path, items)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:cut])
    *before, ended = played(path)
    assert isinstance(ended, Ended)
    assert before == items[: len(before)]
    assert len(before) >= sum(end <= cut for end in ends)
    assert ended.note == "the recording was cut short" or len(before) == len(items)


@given(STEPS, st.data())
@settings(max_examples=100)
def test_a_damaged_file_never_raises_while_it_plays(
    folder: Path, steps: list[Step], data: st.DataObject
) -> None:
    path = folder / "c"
    recorded(path, some_items(steps))
    damaged = bytearray(path.read_bytes())
    at = data.draw(st.integers(len(MAGIC) + 1, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    *_, ended = played(path)
    assert isinstance(ended, Ended)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{}", "is no recording"),
        (b"\x00" * 100, "is no recording"),
        (MAGIC + bytes([VERSION + 1]) + b"xyz", f"of version {VERSION + 1}; .* version {VERSION}"),
    ],
)
def test_another_file_is_refused_at_once(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        RecordingSource(tmp_path / "x")


@pytest.mark.parametrize("make", [Recorder, RecordingSource])
def test_no_such_folder(tmp_path: Path, make: Callable[[Path], object]) -> None:
    with pytest.raises(UsageError, match="No such file"):
        make(tmp_path / "nowhere" / "x")


def test_a_recorder_takes_no_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="exists already"):
        Recorder(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_recording_is_private(tmp_path: Path) -> None:
    recorded(tmp_path / "x", [HELLO])
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Writing past so many bytes of a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with small_files(1000), Recorder(path) as recorder:
        assert not recorder.problem
        for frame in history([])[1] * 50:
            recorder.write(frame)
        assert "too large" in recorder.problem
    assert path.stat().st_size == 1000
    *_, ended = played(path)
    assert ended == Ended("the recording was cut short")


def test_a_demo_takes_little_space(tmp_path: Path) -> None:
    items: list[Item] = []

    async def watch() -> None:
        source = DemoSource(1, Sleeper().pace)
        async for item in source.items():
            items.append(item)
            if len(items) == 1000:
                return

    anyio.run(watch)
    recorded(tmp_path / "x", items)
    plain = sum(len(msgspec.msgpack.encode(item)) for item in items if isinstance(item, State))
    assert (tmp_path / "x").stat().st_size < plain / 2
    assert played(tmp_path / "x") == [*items, Ended()]


async def commands(source: RecordingSource) -> None:
    with pytest.raises(PageddError, match="no questions"):
        await source.explain(1)
    with pytest.raises(PageddError, match="cannot be changed"):
        await source.cancel(1)
    with pytest.raises(PageddError, match="cannot be changed"):
        await source.reprioritize(1, 2)


def test_nobody_answers(tmp_path: Path) -> None:
    recorded(tmp_path / "x", [HELLO])
    source = RecordingSource(tmp_path / "x")
    assert (source.title, source.can_command) == ("replay x", False)
    anyio.run(commands, source)
