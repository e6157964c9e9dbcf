"""What to change when the cache is full all the time: one sentence from what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from pagedd.core.wording import counted
from pagedd.server.sentences import amount

MIB = 1 << 20
GIB = 1 << 30
FULL = 0.95  # share of the pages in use above which the cache counts as full
# Of the steps, so many must find it full: when a request ends or gives way it is not, for a moment.
OFTEN = 0.5
LARGE = 0.5  # share of the pages that one request has to hold to be the cause
# Of free memory, so much may be asked for: what is free now is not free for ever.
FREE_SHARE = 0.5
WORTH = 1.25  # more memory is advised when it gives at least so many times the pages
HEAVY = 2  # weights that are so many times as large as the cache leave it no room


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the steps of the last ``seconds`` were like; means over these steps."""

    seconds: float
    full: float  # share of the steps with over FULL in use, or not a page more than sequences
    usage: float  # share of the pages that sequences name
    preemptions: int  # in this time
    sequences: float  # in the batch
    largest: float  # pages of the request that held most
    pages_at_end: float  # of one sequence when it ends, measured lately; 0: none has ended
    wanted: int  # requests that run or wait
    choices: int  # of the request with the most


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine was given. Sizes in bytes; 0: not known."""

    num_pages: int
    page_size: int  # tokens
    page_bytes: int
    weights_bytes: int
    free_bytes: int  # memory of the cache's kind that nobody uses
    max_num_seqs: int
    max_model_len: int
    dtype: str
    fixed_pages: bool  # --num-pages was given, and outweighs --kv-cache-memory


def advise(pressure: Pressure, limits: Limits) -> str | None:
    """The knob that helps; None while there is no need.

    It is the context length when one request holds half of the pages; more memory where there is
    some; a smaller model when the weights leave none; else fewer sequences.
    """
    if pressure.full <= OFTEN or not pressure.preemptions:
        return None
    said = (
        f"the cache was full in {pressure.full:.0%} of the steps of the last "
        f"{pressure.seconds:.0f} s, with {counted(pressure.preemptions, 'preemption')}: "
    )
    knob = (
        _shorter(pressure, limits)
        or _more_memory(pressure, limits)
        or _smaller_model(limits)
        or _fewer(pressure, limits)
    )
    return None if knob is None else said + knob


def _shorter(pressure: Pressure, limits: Limits) -> str | None:
    if pressure.largest <= LARGE * limits.num_pages:
        return None
    half = limits.num_pages // 2 * limits.page_size
    if not 2 <= half < limits.max_model_len:
        return None
    return (
        f"one request held {pressure.largest:.0f} of {counted(limits.num_pages, 'page')}; "
        f"--max-model-len {half} (now {limits.max_model_len}) would leave the others room"
    )


def _more_memory(pressure: Pressure, limits: Limits) -> str | None:
    if not limits.page_bytes:
        return None
    now = limits.num_pages
    sequences = min(pressure.wanted, limits.max_num_seqs)
    wanted = max(int(_at_end(pressure, limits) * sequences) + 1, int(now * WORTH) + 1)
    there = now + int(limits.free_bytes * FREE_SHARE) // limits.page_bytes
    pages = min(wanted, there)
    if pages < now * WORTH:
        return None
    if limits.fixed_pages:
        setting = f"--num-pages {pages} (now {now})"
    else:
        wished, given = (_size(count * limits.page_bytes) for count in (pages, now))
        setting = f"--kv-cache-memory {wished} (now {given})"
    return f"{amount(limits.free_bytes)} of memory are free; {setting} would use some of it"


def _smaller_model(limits: Limits) -> str | None:
    cache = limits.num_pages * limits.page_bytes
    if not cache or limits.weights_bytes < HEAVY * cache:
        return None
    smaller = "a smaller model would leave more"
    if limits.dtype == "float32":
        smaller = "--dtype bfloat16 (now float32) or a smaller model would leave more"
    return (
        f"the weights take {amount(limits.weights_bytes)} and leave {amount(cache)} for pages; "
        f"{smaller}"
    )


def _fewer(pressure: Pressure, limits: Limits) -> str | None:
    at_end = _at_end(pressure, limits)
    fit = min(int(limits.num_pages / at_end), round(pressure.sequences) - 1)
    fit = max(fit, pressure.choices, 1)
    if fit >= limits.max_num_seqs:
        return None
    return (
        f"{pressure.sequences:.0f} sequences share {counted(limits.num_pages, 'page')}, and one "
        f"needs {at_end:.1f} until it ends; --max-num-seqs {fit} (now {limits.max_num_seqs}) would "
        "let each of them go on"
    )


def _at_end(pressure: Pressure, limits: Limits) -> float:
    """Pages that one sequence needs until it ends, at least as many as one has now."""
    return max(
        pressure.pages_at_end or pressure.largest,
        limits.num_pages * pressure.usage / max(pressure.sequences, 1.0),
        1.0,
    )


def _size(size: int) -> str:
    """As the options take it, rounded up in a unit that shows two digits at least."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if size >= 10 << shift:
            return f"{-(-size >> shift)}{unit}"
    return f"{-(-size >> 10)}KiB"
