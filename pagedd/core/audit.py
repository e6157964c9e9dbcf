"""Every invariant of the scheduler's bookkeeping, checked from scratch.

For tests and simulations, after each step; the costs are proportional to everything there is.
"""

from __future__ import annotations

from collections import Counter

from pagedd.core.events import PageCounts
from pagedd.core.plan import StepPlan
from pagedd.core.sequence import PENDING, Group, Order, Sequence, SequenceState
from pagedd.core.state import SchedulerState


def check_state(state: SchedulerState, in_flight: bool = False) -> None:
    """Raise AssertionError if a page, slot, queue, index or account does not add up.

    While a plan is ``in_flight``, what it computes and swaps in is not offered to the index yet,
    and the tokens that it draws are not known.
    """
    remaining = [sequence for group in state.groups.values() for sequence in group.remaining]
    _check_references(state, remaining)
    _check_held(state, remaining)
    _check_pool(state)
    _hold(state.memory.tier.settled, "pages were evicted, or are to be copied out, for no plan")
    _check_index(state)
    _check_host(state, remaining)
    _check_slots(state)
    _check_queues(state, remaining)
    _check_clients(state)
    for group in state.groups.values():
        _check_group(group)
    for sequence in remaining:
        _check_sequence(state, sequence, in_flight)
    running = sum(group.active > 0 for group in state.groups.values())
    _hold(state.totals.running == running, "requests that run are miscounted")


def check_plan(state: SchedulerState, plan: StepPlan, overtaken: bool = False) -> None:
    """Raise AssertionError if ``plan``, which is in flight, writes a page that is another's too.

    The choices that fork with a chunk share the pages it writes: it is written for all of them.
    ``overtaken``: the step before was collected since, and who ended with it has a part in vain.
    """
    names: dict[int, set[int]] = {}
    for sequence in state.running:
        for page in sequence.table.pages:
            names.setdefault(page, set()).add(sequence.slot)
    written: set[int] = set()
    page_size = state.config.page_size
    for chunk in plan.chunks:
        owner = state.by_slot[chunk.slot]
        if owner is None:
            _hold(overtaken and chunk.slot in state.leave, "a chunk names an empty slot")
            continue
        end = chunk.start + chunk.length
        first, last = chunk.start // page_size, (end - 1) // page_size
        for page in owner.table.pages[first : last + 1]:
            _hold(page not in written, "a page is written twice")
            _hold(
                names[page] <= {chunk.slot, *chunk.samples},
                "what is written has another owner",
            )
            written.add(page)
        _hold(bool(chunk.samples) == (end == owner.num_tokens), "only the last token draws")
    for moves in (plan.swap_out, plan.swap_in):
        moved = [move.dst for move in moves]
        _hold(len(set(moved)) == len(moved), "two pages are swapped to one")
    moved_in = {move.dst for move in plan.swap_in}
    _hold(overtaken or moved_in <= names.keys(), "a page is swapped in for nobody")
    _hold(
        not moved_in & {page for copy in plan.copies for page in copy},
        "a copy and a swap-in meet in a page",
    )
    targets = [copy.dst for copy in plan.copies]
    _hold(len(set(targets)) == len(targets), "two copies go to one page")
    _hold(not {copy.src for copy in plan.copies} & set(targets), "a copy reads what another writes")
    rows = [chunk.length == 1 for chunk in plan.chunks]
    _hold(rows == sorted(rows, reverse=True), "single-token rows do not come first")
    _hold(plan.num_tokens <= state.config.max_num_batched_tokens, "the plan is over its budget")


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)


def _hold_counts(counts: list[int], names: list[int], what: str) -> None:
    """``counts`` says of each page how often ``names`` has it."""
    there = [0] * len(counts)
    for page in names:
        there[page] += 1
    if counts != there:
        wrong = next(page for page, count in enumerate(counts) if count != there[page])
        raise AssertionError(f"{what} {wrong}: {counts[wrong]} references, named {there[wrong]}")


def _check_references(state: SchedulerState, remaining: list[Sequence]) -> None:
    for sequence in remaining:
        pages = sequence.table.pages
        _hold(len(set(pages)) == len(pages), "a table names a page twice")
    names = [page for sequence in remaining for page in sequence.table.pages]
    _hold_counts(state.memory.pool.refs, names, "page")


def _check_held(state: SchedulerState, remaining: list[Sequence]) -> None:
    fill = state.memory.fill
    unused = sum(map(fill.unused_of, remaining))
    _hold(fill.unused == unused, "token slots that hold no token are miscounted")
    most = max((group.book.pages for group in state.groups.values()), default=0)
    _hold(fill.most_pages(state.running) == most, "another request holds most pages")


def _check_pool(state: SchedulerState) -> None:
    pool = state.memory.pool
    free, cached, pinned = pool.resting()
    _hold(not pinned, "pages are still kept for a plan")
    at_rest = free + cached
    _hold(len(set(at_rest)) == len(at_rest), "a page rests in two places")
    _hold(all(pool.keys[page] is None for page in free), "a free page can be found")
    _hold(all(pool.keys[page] is not None for page in cached), "a cached page has no key")
    unreferenced = [page for page, refs in enumerate(pool.refs) if refs == 0]
    _hold(sorted(at_rest) == unreferenced, "free and cached pages are not those without owner")
    owned = pool.refs.count(1)
    shared = len(pool.refs) - owned - len(unreferenced)
    counts = PageCounts(state.config.num_pages, len(free), len(cached), owned, shared)
    _hold(pool.counts == counts, "pages are miscounted")


def _check_index(state: SchedulerState) -> None:
    keys = state.memory.pool.keys
    entries = state.memory.index.entries()
    keyed = {key: page for page, key in enumerate(keys) if key is not None}
    _hold(keyed == entries, "the index does not find the pages by the keys that they have")
    _hold(len(keyed) == len(keys) - keys.count(None), "two pages have one key")


def _check_host(state: SchedulerState, remaining: list[Sequence]) -> None:
    host, size = state.memory.host, state.config.page_size
    for sequence in remaining:
        if sequence.state is SequenceState.SWAPPED:
            whole = len(sequence.host) == state.memory.pages(sequence.num_saved) > 0
            _hold(whole and sequence.host_start == 0, "not all that was saved is in host memory")
        elif sequence.host:
            _hold(sequence.slot >= 0 and not sequence.joined, "found in host memory, not copied in")
            end, table = sequence.host_start + len(sequence.host), len(sequence.table)
            goes_on = sequence.host_start == table or end <= table  # not yet begun, or allocated
            goes_on &= sequence.num_saved == end * size
            _hold(goes_on, "host pages do not go on from those of the device")
    names = [page for sequence in remaining for page in sequence.host]
    _hold_counts(host.refs, names, "host page")
    free, cached = host.resting()
    unreferenced = [page for page, refs in enumerate(host.refs) if refs == 0]
    _hold(sorted(free + cached) == unreferenced, "host pages at rest are not those without owner")
    _hold(all(host.keys[page] is None for page in free), "a free host page can be found")
    _hold(all(host.keys[page] is not None for page in cached), "a cached host page has no key")
    keyed = {key: page for page, key in enumerate(host.keys) if key is not None}
    _hold(keyed == host.entries(), "a host page is found under a key that it has not")
    swapped = len(host.refs) - len(unreferenced)
    counts = (state.config.num_host_pages, len(free), swapped, len(cached))
    _hold(host.counts == counts, "host pages are miscounted")
    there = sum(each.state is SequenceState.SWAPPED for each in remaining)
    _hold(state.totals.swapped == there, "swapped sequences are miscounted")


def _check_slots(state: SchedulerState) -> None:
    used = [sequence.slot for sequence in state.running]
    for sequence in state.running:
        _hold(state.by_slot[sequence.slot] is sequence, "a slot is another's")
        _hold(sequence.samples == (sequence.slot,), "a slot draws for another")
    _hold(sum(each is not None for each in state.by_slot) == len(used), "a slot is left taken")
    reserved = [slot for group in state.groups.values() for slot in group.reserved]
    everywhere = sorted(used + reserved + state.slots)
    _hold(everywhere == list(range(state.config.max_num_seqs)), "slots are lost or given twice")


def _check_queues(state: SchedulerState, remaining: list[Sequence]) -> None:
    orders = [sequence.order for sequence in state.running]
    _hold(orders == sorted(orders), "what runs is out of order")
    waiting = list(state.waiting)
    _hold(len(state.waiting) == len(waiting), "what waits is miscounted")
    if waiting:
        first = min(waiting, key=lambda each: (each.priority, *_turn(each)))
        claimant = min(waiting, key=lambda each: (each.asked, *_turn(each)))
        _hold(waiting[0] is state.waiting.first is first, "another is the first")
        _hold(state.waiting.claimant is claimant, "another may displace first")
    if not state.config.fair_share:
        orders = [sequence.order for sequence in waiting]
        _hold(orders == sorted(orders), "what waits is out of order")
    for sequence in waiting:
        _hold(not sequence.table.pages, "a waiting sequence holds pages")
        _hold(sequence.slot == -1 and not sequence.joined, "a waiting sequence holds a slot")
    queued = sorted(map(id, [*waiting, *state.running]))
    _hold(queued == sorted(map(id, remaining)), "a sequence is in no queue, or in two")


def _turn(sequence: Sequence) -> tuple[int, int, Order]:
    """Sorts what waits at one priority, as far as it comes to the first."""
    account = sequence.group.account
    if account is None:
        return 0, 0, sequence.order
    return not sequence.has_begun, 0 if sequence.has_begun else account.used, sequence.order


def _check_clients(state: SchedulerState) -> None:
    if state.clients is None:
        accounts = [group.account for group in state.groups.values() if group.account is not None]
        _hold(not accounts, "an account without turns")
        return
    requests = Counter(group.account for group in state.groups.values())
    for account, count in requests.items():
        _hold(account is not None and account.requests == count, "a client's requests are lost")
    _hold(
        {*state.clients.accounts().values()} == {*requests},
        "an account of a client that has no request",
    )


def _check_group(group: Group) -> None:
    sequences = group.remaining
    if group.forked:
        _hold(group.open == len(sequences), "choices that have not ended are miscounted")
        _hold(not group.reserved, "slots are kept for choices that exist")
    else:
        _hold(len(sequences) == 1, "there are choices before the fork")
    _hold(group.active == sum(each.joined for each in sequences), "active is miscounted")
    decoding = sum(each.state is SequenceState.DECODING for each in sequences)
    _hold(group.decoding == decoding, "decoding is miscounted")
    held = {page for each in sequences for page in each.table.pages}
    _hold(group.book.pages == len(held), "the account's pages are not those held")


def _check_sequence(state: SchedulerState, sequence: Sequence, in_flight: bool) -> None:
    size, computed = state.config.page_size, sequence.num_computed
    table, tokens = len(sequence.table.pages), len(sequence.tokens)
    _hold(sequence.order == sequence.order_now(), "an order is not that of the priority")
    room, indexed = table * size, computed // size
    if sequence.host:  # the rest is not on the device yet
        room, indexed = max(room, sequence.num_saved), sequence.num_indexed
        _hold(indexed <= sequence.arrived <= table, "pages are found before they arrive")
    _hold(computed <= room, "more is computed than its pages hold")
    offered = sequence.num_indexed == indexed or not state.config.prefix_cache
    offered |= in_flight and sequence.num_indexed < indexed
    _hold(offered, "a full page was not offered to the index, or one that is not full")
    _hold(computed < tokens, "nothing is left to compute")
    closing = sequence in state.closing
    _hold(tokens < sequence.group.max_tokens or closing, "a sequence is over its limit")
    pending = sequence.tokens.count(PENDING)
    _hold(not pending or in_flight, "a token is waited for that no step draws")
    _hold(pending == (sequence.tokens[-1] == PENDING), "a token is not known, and one after it is")
    _hold(bool(pending) or not closing, "a sequence ends without its last token")
    _hold((table - 1) * size < tokens, "a sequence holds pages beyond its tokens")
