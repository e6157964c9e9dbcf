"""Commit: what a step has computed and drawn becomes part of the sequences."""

from __future__ import annotations

from collections.abc import Iterable

from pagedd.core.events import Failed, Token
from pagedd.core.plan import Chunk, Sampled
from pagedd.core.sequence import Sequence, SequenceState
from pagedd.core.state import SchedulerState
from pagedd.errors import InvalidLogits


def advance(state: SchedulerState, chunks: Iterable[Chunk]) -> None:
    """The chunks are in the cache now: count them, and let the index find what became full."""
    state.memory.arrive()
    page_size, computed = state.config.page_size, 0
    for slot, start, length, samples in chunks:
        sequence = state.by_slot[slot]
        assert sequence is not None, f"slot {slot} was given away while its step ran"
        assert sequence.num_computed == start, f"the step of slot {slot} was committed before"
        end = sequence.num_computed = start + length
        computed += length * (len(samples) or 1)  # also for the choices that fork with it
        if start < sequence.seen:
            again = min(end, sequence.seen) - start
            sequence.group.book.recomputed_tokens += again
            state.totals.recomputed_tokens += again
        if end > sequence.seen:
            sequence.seen = end
        if end // page_size > sequence.num_indexed:
            state.memory.register(sequence)
        if len(samples) > 1:
            _catch_up(state, sequence, samples)
    state.memory.fill.unused -= computed


def draw(state: SchedulerState, sampled: Sampled) -> None:
    """Append what one slot drew, and see whether its choice ends with that."""
    sequence = state.by_slot[sampled.slot]
    if sequence is None:
        return  # it ended while the step ran
    if sequence.index in sequence.group.early:
        state.end(sequence)  # nobody wanted it even before it forked
        return
    if sampled.token < 0:
        _fail(state, sequence)
        return
    sequence.tokens.append(sampled.token)
    state.totals.generated_tokens += 1
    if sequence.group.account is not None:
        sequence.group.account.used += 1
    finish, stop = _ending(state, sequence, sampled.token)
    state.events.tokens.append(
        Token(sequence.handle, sequence.index, sampled.token, sampled.logprobs, finish, stop)
    )
    if sequence.state is not SequenceState.DECODING:
        state.decode(sequence)
    if finish is not None:
        state.end(sequence)


def _catch_up(state: SchedulerState, parent: Sequence, slots: tuple[int, ...]) -> None:
    """The choices that forked with this step stand where the first one stands."""
    for slot in slots[1:]:
        child = state.by_slot[slot]
        assert child is not None, f"slot {slot} was given away while its step ran"
        child.num_computed = child.seen = parent.num_computed
        child.keys = list(parent.keys)  # the same tokens: no need to hash them again
        child.num_indexed = parent.num_indexed


def _ending(state: SchedulerState, sequence: Sequence, token: int) -> tuple[str | None, int | None]:
    """Why the choice ends with ``token``, its last: (``finish``, ``stop``) of a Token event."""
    group = sequence.group
    if token in group.ends and sequence.num_generated >= group.request.params.min_tokens:
        own = token in state.config.eos_ids and not group.request.params.ignore_eos
        return "stop", None if own else token
    if len(sequence.tokens) >= group.max_tokens:
        return "length", None
    return None, None


def _fail(state: SchedulerState, sequence: Sequence) -> None:
    """No logits to draw from. What the request has in the cache is not worth finding again."""
    group = sequence.group
    for each in group.sequences:
        state.memory.distrust(each)
    position = sequence.num_tokens
    message = f"the model gave no valid logits for the token at position {position}"
    detail = {"index": sequence.index, "position": position}
    state.fail(group, Failed(sequence.handle, InvalidLogits.code, message, detail))
