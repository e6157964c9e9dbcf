"""The first line: which daemon, how it is, how much it does; and the banner below it."""

from __future__ import annotations

from rich.style import Style

from pagedd_tui import tones
from pagedd_tui.clock import brief, time_of_day
from pagedd_tui.feed import Feed
from pagedd_tui.model import Model
from pagedd_tui.plain import Line, line, plain
from pagedd_tui.ring import Ring

Part = tuple[str, Style]

_STATES = {
    "ready": tones.GOOD,
    "loading": tones.WARN,
    "draining": tones.WARN,
    "stalled": tones.BAD,
    "failed": tones.BAD,
}


def header_line(feed: Feed, model: Model, source: str, now: float, width: int, dot: str) -> Line:
    """What fits of it; the least important parts go first."""
    counters, status = model.counters, feed.status
    state, style = _state(feed)
    name = "" if feed.hello is None else plain(feed.hello.model, 32)
    up = "" if status is None or feed.lost else f"up {brief(status.uptime_s + _since(feed, now))}"
    waiting = counters.num_requests_waiting
    parts: list[tuple[int, list[Part]]] = [
        (0, [("pagedd ", tones.STRONG), (f"{dot} {state}", style)]),
        (4, [(f"  {name}", tones.TEXT)]),
        (7, [(f"  {source}", tones.DIM)] if source != "live" else []),
        (6, [(f"  {up}", tones.DIM)] if up else []),
        (1, [("  run ", tones.DIM), (str(counters.num_requests_running), tones.STRONG)]),
        (2, [(" wait ", tones.DIM), (str(waiting), tones.WARN if waiting else tones.STRONG)]),
        (5, [(" swap ", tones.DIM), _swapped(counters.num_requests_swapped)]),
        (3, [("  KV ", tones.DIM), (f"{counters.gpu_cache_usage:.0%}", tones.STRONG)]),
        (8, [("  host ", tones.DIM), (f"{counters.host_cache_usage:.0%}", tones.STRONG)]),
        (4, [(f"  {counters.tokens_per_second:.0f}", tones.STRONG), (" tok/s", tones.DIM)]),
        (6, [("  hits ", tones.DIM), (f"{counters.prefix_hit_rate:.0%}", tones.STRONG)]),
    ]
    while len(parts) > 1 and _cells(parts) > width:
        parts.remove(max(parts, key=_rank))
    return line(*(part for _, group in parts for part in group))


def banner_line(text: str, width: int) -> Line:
    """One line in reverse video."""
    return line((plain(f" {text} ", width).ljust(width), tones.BANNER))


def banner_text(feed: Feed, ring: Ring, now: float, freeze: str = "space") -> str:
    """What has to be known about what is shown; empty when it is live and whole.

    ``freeze``: the key with which it goes on.
    """
    said = trouble(feed, now)
    if ring.live:
        return said
    model = ring.model_at()
    frozen = (
        f"FROZEN at {time_of_day(model.at)}, {brief(max(ring.position, 0.0))} ago, "
        f"frame {model.frame}; new frames are recorded; {freeze}: live"
    )
    return f"{frozen}; {said}" if said else frozen


def trouble(feed: Feed, now: float) -> str:
    """What is wrong with the feed, as a sentence; empty for nothing."""
    if feed.lost is not None:
        since = round(max(now - _lost_since(feed), 0.0))
        retry = max(round(feed.lost.retry_s - (now - feed.lost_at)), 0)
        again = f"retry in {retry} s" if retry else "trying again"
        return f"disconnected {since} s, {again} - {plain(feed.lost.reason, 200)}"
    if feed.ended is not None:
        note = plain(feed.ended.note, 200)
        return f"the recording has ended{': ' + note if note else ''}"
    if feed.hello is None:
        return "connecting"
    if silence := feed.silence(now):
        return f"no answer from the daemon for {round(silence)} s; this is how it was then"
    if feed.breaks and feed.breaks[-1].restarted and now - feed.breaks[-1].at < 10:
        return "the daemon was restarted: what it held before is gone"
    if feed.model.frame == 0:
        return "waiting for the first frame"
    status = feed.status
    if status is not None and status.state != "ready":
        reason = f": {plain(status.reason, 200)}" if isinstance(status.reason, str) else ""
        return f"the daemon is {plain(status.state, 20)}{reason}"
    return ""


def _state(feed: Feed) -> tuple[str, Style]:
    if feed.lost is not None:
        return "disconnected", tones.BAD
    if feed.ended is not None:
        return "ended", tones.DIM
    if feed.hello is None:
        return "connecting", tones.WARN
    state = "ready" if feed.status is None else plain(feed.status.state, 12)
    return state, _STATES.get(state, tones.WARN)


def _swapped(count: int) -> Part:
    return str(count), tones.BAD if count else tones.STRONG


def _lost_since(feed: Feed) -> float:
    """When the connection was lost; ``lost_at`` is of the last attempt."""
    return feed.breaks[-1].at if feed.breaks else feed.lost_at


def _since(feed: Feed, now: float) -> float:
    """Seconds since the status came."""
    return max(now - feed.status_at, 0.0)


def _cells(parts: list[tuple[int, list[Part]]]) -> int:
    return sum(len(text) for _, group in parts for text, _ in group)


def _rank(part: tuple[int, list[Part]]) -> int:
    return part[0]
