"""No step of a less urgent sequence while a more urgent one waits for what it holds.

The rule, from the definitions and not from how admission reckons. A plan has been made. Of a
sequence w that waits, the *lower* ones are those that run with a priority that is less urgent than
w was asked to have (ageing moves w in the queue, but gives it nothing that others hold), and the
*upper* ones all others that run. When a lower one has a chunk in the plan, then w could not have
been served in its place, for one of these reasons:

- rows: what the upper ones still lack fills the step alone;
- slots: the free ones and those of all lower ones are fewer than w needs;
- pages: w would need more than there are for it, if all lower ones gave back what they hold:
  its pages but those found in the cache, and those that the upper ones lack for the tokens they
  know, against the free ones (without those found) and those that only lower ones name;
- line: one that waits and was asked to be at least as urgent as w meets one of these limits
  itself, though it might take from even more. It is not passed, or small requests would keep it
  out for ever.
"""

from __future__ import annotations

from collections import Counter

from pagedd.core.plan import StepPlan
from pagedd.core.sequence import Sequence
from pagedd.core.state import SchedulerState


def check_no_inversion(state: SchedulerState, plan: StepPlan, rows: int) -> None:
    """Raise AssertionError if ``plan``, just made, serves a lower one without a reason.

    A step may have so many ``rows``.
    """
    # what ends with a step under way needs nothing any more
    waiting = [each for each in state.waiting if each not in state.closing]
    served = {chunk.slot for chunk in plan.chunks}
    if not waiting:
        return
    served |= {slot for chunk in plan.chunks for slot in chunk.samples}
    worst = max(each.priority for each in state.running if each.slot in served)
    held_up = {each: limit_of(state, plan, each, rows) for each in waiting if each.asked < worst}
    for sequence, limit in held_up.items():
        line = any(held_up[each] for each in held_up if each.asked <= sequence.asked)
        assert limit or line, (
            f"request {sequence.handle} ({sequence.asked}) waits, and one of priority {worst} runs"
        )


def limit_of(state: SchedulerState, plan: StepPlan, sequence: Sequence, rows: int) -> str:
    """What keeps ``sequence`` from being served in the place of all lower ones; "" is nothing."""
    size, refs = state.config.page_size, state.memory.pool.refs
    lower = [each for each in state.running if each.priority > sequence.asked]
    upper = [each for each in state.running if each.priority <= sequence.asked]
    forked = {slot for chunk in plan.chunks for slot in chunk.samples if slot != chunk.slot}
    lack = sum(each.num_tokens - each.num_computed for each in upper if each.slot not in forked)
    if lack >= rows:
        return "rows"
    slots = len(state.slots) + sum(1 + len(each.group.reserved) for each in lower)
    if slots < sequence.slots_needed:
        return "slots"
    found = state.memory.hits(sequence)
    need = -(-sequence.num_tokens // size) - len(found)
    need += sum(-(-each.num_tokens // size) - len(each.table) for each in upper)
    names = Counter(page for each in lower for page in each.table.pages)
    gained = {page for page, count in names.items() if count == refs[page]}
    free = {page for page, count in enumerate(refs) if count == 0}
    return "pages" if need > len((free | gained) - set(found)) else ""
