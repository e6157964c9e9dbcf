"""Memory: page tables, counts and copies together."""

from __future__ import annotations

from pagedd.core.memory import Memory
from pagedd.core.plan import Copy
from pagedd.core.request import Request, SamplingParams
from pagedd.core.sequence import Group, Sequence, SequenceState


def sequence_of(handle: int, length: int) -> Sequence:
    request = Request(handle, tuple(range(1, length + 1)), SamplingParams(max_tokens=9))
    return Group(request, handle, 0.0, frozenset(), 99).sequences[0]


def forked(memory: Memory, length: int) -> tuple[Sequence, Sequence]:
    """Two sequences that share the pages of ``length`` computed tokens, and drew one more."""
    parent = sequence_of(1, length)
    memory.extend(parent, length, [], 0.0)
    child = Sequence(parent.group, 1, list(parent.tokens))
    memory.fork(parent, child, 0.0)
    memory.settle()
    for sequence in (parent, child):
        sequence.num_computed = length
        sequence.tokens.append(9)
    return parent, child


def test_first_write_to_a_shared_page_copies_it_and_the_last_holder_keeps_it() -> None:
    memory = Memory(8, 4, b"k", prefix_cache=True)
    parent, child = forked(memory, 6)
    copies: list[Copy] = []
    assert memory.needed(parent, 7) == memory.needed(child, 7) == 1
    assert memory.extend(parent, 7, copies, 0.0) == [(1, 2)]
    assert copies == [Copy(1, 2)]
    assert memory.needed(child, 7) == 0
    assert memory.extend(child, 7, copies, 0.0) == []
    assert (parent.table.pages, child.table.pages) == ([0, 2], [0, 1])


def test_pages_that_are_there_already_are_no_negative_need() -> None:
    memory = Memory(8, 1, b"k", prefix_cache=True)
    sequence = sequence_of(1, 6)
    memory.extend(sequence, 5, [], 0.0)
    sequence.num_computed = 1
    assert [memory.needed(sequence, upto) for upto in (2, 5, 6)] == [0, 0, 1]


def test_the_source_of_a_copy_is_no_target_in_the_same_plan() -> None:
    memory = Memory(3, 4, b"k", prefix_cache=True)
    parent, child = forked(memory, 6)
    copies: list[Copy] = []
    memory.extend(parent, 7, copies, 0.0)
    memory.release(child, 0.0)
    assert memory.pool.refs[1] == 0
    other = sequence_of(2, 3)
    assert memory.needed(other, 3) > memory.pool.available
    memory.settle()
    assert memory.extend(other, 3, copies, 0.0) == [(0, 1)]
    assert copies == [Copy(1, 2)]


def test_pages_are_offered_once_and_only_when_full() -> None:
    memory = Memory(8, 4, b"k", prefix_cache=True)
    sequence = sequence_of(1, 11)
    memory.extend(sequence, 11, [], 0.0)
    for computed, found in ((3, 0), (4, 1), (7, 1), (11, 2)):
        sequence.num_computed = computed
        memory.register(sequence)
        assert len(memory.index) == found
    twin = sequence_of(2, 11)
    assert memory.hits(twin) == sequence.table.pages[:2]
    assert memory.resting(memory.hits(twin)) == 0
    memory.release(sequence, 0.0)
    assert memory.resting(memory.hits(twin)) == 2


def test_nothing_is_found_of_what_is_distrusted() -> None:
    memory = Memory(8, 4, b"k", prefix_cache=True)
    sequence = sequence_of(1, 11)
    memory.extend(sequence, 11, [], 0.0)
    sequence.num_computed = 11
    memory.register(sequence)
    memory.distrust(sequence)
    assert memory.hits(sequence_of(2, 11)) == []
    memory.release(sequence, 0.0)
    assert memory.pool.counts.free == 8


def test_a_host_page_that_is_copied_back_is_free_only_with_the_next_plan() -> None:
    memory = Memory(8, 4, b"k", prefix_cache=False, num_host_pages=2)
    first, second = sequence_of(1, 9), sequence_of(2, 9)
    for sequence in (first, second):
        memory.extend(sequence, 3, [], 0.0)
        sequence.num_computed = 3
    assert memory.save(first) == 1
    (out,) = memory.tier.take_copies()
    memory.release(first, 0.0)
    first.state = SequenceState.SWAPPED
    memory.adopt(first, [], 0.0)
    assert first.num_computed == 3
    memory.extend(first, 4, [], 0.0)
    assert [move.src for move in memory.bring(first, None)] == [out.dst]
    assert memory.save(second) == 1
    assert memory.tier.take_copies()[0].dst != out.dst, "it is written before it is read"
    assert memory.host.available == 0
    memory.settle()
    assert memory.host.available == 1


def test_a_page_that_may_be_wrong_is_found_in_no_memory() -> None:
    memory = Memory(8, 4, b"k", prefix_cache=True, num_host_pages=4)
    sequence = sequence_of(1, 9)
    memory.extend(sequence, 8, [], 0.0)
    sequence.num_computed = 8
    memory.save(sequence)
    assert None not in memory.in_host(sequence)
    memory.distrust(sequence)
    assert memory.in_host(sequence) == [None, None]
    memory.discard(sequence)
    assert memory.host.available == 4


def test_host_pages_that_are_kept_are_no_room_for_others() -> None:
    """Both are cached and hold the first two pages: nothing is left for the third."""
    memory = Memory(8, 4, b"k", prefix_cache=True, num_host_pages=2)
    first, second = sequence_of(1, 9), sequence_of(2, 9)
    for sequence, computed in ((first, 8), (second, 9)):
        memory.extend(sequence, computed, [], 0.0)
        sequence.num_computed = computed
    assert memory.host_room(first) == (2, 2)
    memory.save(first)
    assert memory.host_room(second) == (1, 0)
    memory.discard(first)
    assert memory.host.counts.cached == 2
    assert memory.host_room(second) == (1, 0)
    assert memory.host_room(first) == (0, 0)
