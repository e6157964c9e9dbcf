"""Commit, in two halves: what a step computes, and what it has drawn, become part of the sequences.

A device carries steps out in order. So what one of them computes counts as soon as it was launched:
the next plan may build on it. What it has drawn is heard of later. Until then a placeholder stands
for the token, at the very end of its sequence: there is never more than one, and nothing that needs
the token itself (keys of pages, a join) reaches that far.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pagedd.core.events import Failed, Token
from pagedd.core.plan import Sampled, StepPlan, TokenLogprobs
from pagedd.core.sequence import PENDING, Sequence, SequenceState
from pagedd.core.state import SchedulerState
from pagedd.errors import InvalidLogits


class Launched(NamedTuple):
    """A step that was launched, and what has a part in it; slots may be others' by its end."""

    plan: StepPlan
    computed: list[Sequence]
    drawing: list[Sequence | None]  # in the order of the chunks' samples; None: it has ended
    forked: list[tuple[Sequence, Sequence]]  # parent, child


def launch(state: SchedulerState, plan: StepPlan) -> Launched:
    """The device has got the chunks: count them, and give a placeholder to what draws.

    A chunk of a sequence that has ended since the plan was made is wasted.
    """
    state.memory.arrive()
    launched = Launched(plan, [], [], [])
    computed, rows, by_slot = 0, 0, state.by_slot
    for slot, start, length, samples in plan.chunks:
        sequence = by_slot[slot]
        if sequence is None:
            launched.drawing.extend([None] * len(samples))
            continue
        assert sequence.num_computed == start, f"the step of slot {slot} was committed before"
        end = sequence.num_computed = start + length
        rows += length
        computed += length * (len(samples) or 1)  # also for the choices that fork with it
        if start < sequence.seen:
            again = min(end, sequence.seen) - start
            sequence.group.book.recomputed_tokens += again
            state.totals.recomputed_tokens += again
        if end > sequence.seen:
            sequence.seen = end
        launched.computed.append(sequence)
        if samples:
            _expect(state, launched, sequence)
        if len(samples) > 1:
            _catch_up(state, launched, sequence, samples)
    state.memory.fill.unused -= computed
    state.totals.computed_tokens += rows
    return launched


def collect(state: SchedulerState, launched: Launched, results: Iterable[Sampled]) -> None:
    """The step has ended well: let the index find what became full, and take in the tokens."""
    page_size = state.config.page_size
    for sequence in launched.computed:
        if sequence.num_computed // page_size > sequence.num_indexed:
            state.memory.register(sequence)
    for parent, child in launched.forked:
        if len(parent.keys) > len(child.keys):
            child.keys = list(parent.keys)  # the same tokens: no need to hash them again
        state.memory.register(child)
    state.closing.clear()
    _take_in(state, launched.drawing, results)


def _take_in(
    state: SchedulerState, drawing: list[Sequence | None], results: Iterable[Sampled]
) -> None:
    """What each slot drew. Most sequences just go on: that is done here, without a call for each.

    For the others, and it comes to the same, there is :func:`_draw`.
    """
    decoding, ended, tell = SequenceState.DECODING, SequenceState.ENDED, state.events.tokens.append
    plain = 0
    for sequence, (_, token, logprobs) in zip(drawing, results, strict=True):
        if sequence is None or sequence.state is ended:
            continue
        group, tokens = sequence.group, sequence.tokens
        goes_on = token >= 0 and token not in group.ends and len(tokens) < group.max_tokens
        if goes_on and sequence.state is decoding and not group.early and group.account is None:
            assert tokens[-1] == PENDING, "a token that nobody waits for"
            tokens[-1] = token
            plain += 1
            tell(Token(group.request.handle, sequence.index, token, logprobs))
        else:
            _draw(state, sequence, token, logprobs)
    state.totals.generated_tokens += plain


def _draw(
    state: SchedulerState, sequence: Sequence, token: int, logprobs: TokenLogprobs | None
) -> None:
    """Append what one slot drew, and see whether its choice ends with that."""
    assert sequence.tokens[-1] == PENDING, "a token that nobody waits for"
    if sequence.index in sequence.group.early:
        sequence.tokens.pop()
        state.end(sequence)  # nobody wanted it even before it forked
        return
    if token < 0:
        sequence.tokens.pop()
        _fail(state, sequence)
        return
    sequence.tokens[-1] = token
    state.totals.generated_tokens += 1
    if sequence.group.account is not None:
        sequence.group.account.used += 1
    finish, stop = _ending(state, sequence, token)
    state.events.tokens.append(
        Token(sequence.handle, sequence.index, token, logprobs, finish, stop)
    )
    if sequence.state is not SequenceState.DECODING and sequence.joined:
        state.decode(sequence)
    if finish is not None:
        state.end(sequence)


def _expect(state: SchedulerState, launched: Launched, sequence: Sequence) -> None:
    """``sequence`` draws; what it will be known to have drawn may be its last token."""
    sequence.tokens.append(PENDING)
    launched.drawing.append(sequence)
    if len(sequence.tokens) >= sequence.group.max_tokens:
        state.closing.add(sequence)


def _catch_up(
    state: SchedulerState, launched: Launched, parent: Sequence, slots: tuple[int, ...]
) -> None:
    """The choices that forked with this step stand where the first one stands, and draw too."""
    for slot in slots[1:]:
        child = state.by_slot[slot]
        assert child is not None, f"slot {slot} was given away while its step ran"
        child.num_computed = child.seen = parent.num_computed
        launched.forked.append((parent, child))
        _expect(state, launched, child)


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
    if group.request.params.grammar is not None:
        message += ", or the answer's grammar cannot go on: it allows nothing, or is too complex"
    detail = {"index": sequence.index, "position": position}
    state.fail(group, Failed(sequence.handle, InvalidLogits.code, message, detail))
