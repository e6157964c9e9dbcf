"""The last minutes of a feed, to go back to. Frames are kept as bytes, keyframes among them::

    segment 0                       segment 1                  segment 2
    keyframe change change change | keyframe change change  | keyframe change      ← newest
    dropped first                                  ↑ position

Any picture is the keyframe before it and the changes since, so that it takes little time to get.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

import msgspec

from pagedd.protocol import Event, State, Status
from pagedd_tui.model import BrokenFrame, Model

KEY_EVERY_S = 5.0
MAX_BYTES = 64 * 1024 * 1024
MAX_EVENTS = 10_000


@dataclass(slots=True)
class _Segment:
    """Frames from a keyframe on; ``times``: when each was received."""

    times: list[float] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, received: float, frame: bytes) -> None:
        self.times.append(received)
        self.frames.append(frame)
        self.size += len(frame)


@dataclass(frozen=True, slots=True)
class _Place:
    """A frame: ``segment`` is counted from the first there ever was."""

    segment: int
    frame: int


class Ring:
    """Keeps ``minutes`` of frames, fewer when they are more than ``max_bytes``.

    It is ``live`` until :meth:`hold`, :meth:`step` or :meth:`seek`, and again after :meth:`end`.
    Times of ``received`` are seconds that do not go back. What is dropped while it is looked at
    takes the position with it, to the oldest that there is.
    """

    def __init__(self, minutes: float = 5.0, max_bytes: int = MAX_BYTES) -> None:
        self._seconds = minutes * 60.0
        self._max_bytes = max_bytes
        self._segments: deque[_Segment] = deque()
        self._dropped = 0  # segments
        self._size = 0
        self._head = Model()
        self._place: _Place | None = None  # None: live
        self._shown: tuple[_Place, Model] | None = None  # the last picture that was asked for
        self._events: deque[tuple[float, Event]] = deque(maxlen=MAX_EVENTS)
        self._statuses: deque[tuple[float, Status]] = deque()
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(State).decode

    @property
    def live(self) -> bool:
        """Whether the newest frame is shown, whichever that is."""
        return self._place is None

    @property
    def head(self) -> Model:
        """The newest picture; it goes on."""
        return self._head

    @property
    def size(self) -> int:
        """Bytes of the frames."""
        return self._size

    @property
    def span(self) -> float:
        """Seconds from the oldest frame to the newest."""
        return self._newest - self._segments[0].times[0] if self._segments else 0.0

    @property
    def position(self) -> float:
        """By how many seconds what is shown is older than the newest."""
        return self._newest - self.received

    @property
    def received(self) -> float:
        """When the frame that is shown came; 0 without any."""
        place = self._where()
        return self._segment(place).times[place.frame] if place is not None else 0.0

    def add(self, item: State | Event | Status, received: float) -> None:
        """Keep what has come. A frame that does not follow is left out, up to the next keyframe."""
        match item:
            case Event():
                self._events.append((received, item))
            case Status():
                self._statuses.append((received, item))
            case State():
                self._add_frame(item, received)

    def hold(self) -> None:
        """Keep showing what is shown, while newer frames come."""
        self._place = self._where()

    def step(self, frames: int) -> None:
        """So many frames on, or back if negative, as far as there are any."""
        place = self._where()
        if place is None:
            return
        segment, frame = place.segment, place.frame + frames
        while frame < 0 and segment > self._dropped:
            segment -= 1
            frame += len(self._segments[segment - self._dropped].frames)
        last = self._dropped + len(self._segments) - 1
        while segment < last and frame >= len(self._segments[segment - self._dropped].frames):
            frame -= len(self._segments[segment - self._dropped].frames)
            segment += 1
        most = len(self._segments[segment - self._dropped].frames) - 1
        self._place = _Place(segment, min(max(frame, 0), most))

    def seek(self, seconds: float) -> None:
        """To the frame that was shown so many seconds later, or earlier if negative.

        At least by one frame, so that a long gap between two can be crossed.
        """
        before = self._where()
        if before is None or not seconds:
            return
        time = self.received + seconds
        starts = [segment.times[0] for segment in self._segments]
        number = max(bisect_right(starts, time) - 1, 0)
        frame = bisect_right(self._segments[number].times, time) - 1
        self._place = _Place(self._dropped + number, max(frame, 0))
        if self._place == before:
            self.step(1 if seconds > 0 else -1)

    def end(self) -> None:
        """Back to the newest."""
        self._place = self._shown = None

    def model_at(self) -> Model:
        """The picture that is shown: not to be changed, and valid up to the next call."""
        place = self._place and self._where()
        if place is None:
            return self._head
        known, model, start = self._shown, Model(), 0
        if known and known[0].segment == place.segment and known[0].frame <= place.frame:
            model, start = known[1], known[0].frame + 1
        for frame in self._segment(place).frames[start : place.frame + 1]:
            model.take(self._decode(frame))
        self._shown = (place, model)
        return model

    def events(self) -> list[Event]:
        """Those that had come when the frame that is shown came, all of them when live."""
        until = self.received
        return [event for received, event in self._events if self.live or received <= until]

    def status(self) -> Status | None:
        """The last one that had come then."""
        until, last = self.received, None
        for received, status in self._statuses:
            if self.live or received <= until:
                last = status
        return last

    def clear(self) -> None:
        """Forget everything."""
        self._dropped += len(self._segments)
        self._segments.clear()
        self._events.clear()
        self._statuses.clear()
        self._size = 0
        self._head = Model()
        self._place = self._shown = None

    def _add_frame(self, frame: State, received: float) -> None:
        try:
            self._head.take(frame)
        except BrokenFrame:
            return
        newest = self._segments[-1] if self._segments else None
        if newest is None or frame.key or self._complete(newest, received):
            newest = _Segment()
            self._segments.append(newest)
            frame = frame if frame.key else self._head.keyframe()
        data = self._encode(frame)
        newest.add(received, data)
        self._size += len(data)
        self._trim(received)

    def _complete(self, segment: _Segment, now: float) -> bool:
        return now - segment.times[0] >= KEY_EVERY_S or segment.size > self._max_bytes // 8

    def _trim(self, now: float) -> None:
        segments = self._segments
        while len(segments) > 1 and (
            segments[1].times[0] <= now - self._seconds or self._size > self._max_bytes
        ):
            self._size -= segments.popleft().size
            self._dropped += 1
        oldest = segments[0].times[0]
        while self._events and self._events[0][0] < oldest - self._seconds:
            self._events.popleft()
        while len(self._statuses) > 1 and self._statuses[1][0] <= oldest:
            self._statuses.popleft()

    @property
    def _newest(self) -> float:
        return self._segments[-1].times[-1] if self._segments else 0.0

    def _segment(self, place: _Place) -> _Segment:
        return self._segments[place.segment - self._dropped]

    def _where(self) -> _Place | None:
        """The frame that is shown; None without any."""
        if not self._segments:
            return None
        if self._place is None:
            last = len(self._segments) - 1
            return _Place(self._dropped + last, len(self._segments[last].frames) - 1)
        if self._place.segment < self._dropped:
            self._place = _Place(self._dropped, 0)
        return self._place
