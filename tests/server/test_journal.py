"""The journal: a bounded ring that knows the names of what has ended."""

from __future__ import annotations

from pagedd.core.events import Accepted, Evicted, Failed
from pagedd.server.journal import Journal
from tests.server.told import finished, holder, preempted, waiting, who


def numbers(journal: Journal) -> list[int | None]:
    return [journal[number].handle for number in range(journal.start, journal.end)]


def test_it_keeps_the_last_and_counts_them_all() -> None:
    journal = Journal(4)
    assert (journal.start, journal.end) == (0, 0)
    for handle in range(1, 7):
        journal.record(Accepted(handle, 0), float(handle))
    assert (journal.start, journal.end) == (2, 6)
    assert numbers(journal) == [3, 4, 5, 6]
    assert [journal[number].at for number in (2, 5)] == [3.0, 6.0]


def test_a_name_lasts_as_long_as_the_entries_that_have_it() -> None:
    journal = Journal(3)
    journal.know(1, who("a"))
    journal.know(2, who("b"))
    journal.record(Accepted(1, 0), 1.0)
    journal.record(preempted(handle=1, taker=2), 2.0)
    journal.record(finished(1), 3.0)
    assert [entry.event.handle for entry in journal.of(1)] == [1, 1, 1]
    assert [entry.id_of(1) for entry in journal.of(1)] == ["a"] * 3
    assert journal.of(1)[1].id_of(2) == "b"
    assert journal.ended("a") == 1
    assert journal.record(Accepted(1, 0), 4.0).who is None, "the name ended with its request"
    for handle in (2, 2, 2):
        journal.record(Accepted(handle, 0), 5.0)
    assert journal.of(1) == []
    assert journal.ended("a") is None


def test_the_names_of_holders_are_kept_and_strangers_have_none() -> None:
    journal = Journal()
    for handle, id in ((1, "a"), (2, "b"), (3, "c")):
        journal.know(handle, who(id))
    event = waiting(handle=1, first=2, holders=(holder(3, 5), holder(99, 1)))
    entry = journal.entry(event, 1.0)
    assert [entry.id_of(handle) for handle in (1, 2, 3, 99)] == ["a", "b", "c", ""]
    assert journal.end == 0, "an entry alone is not recorded"


def test_of_several_that_ended_the_last_on_the_connection_is_meant() -> None:
    journal = Journal()
    for handle, connection in ((1, 1), (2, 2), (3, 1)):
        journal.know(handle, who("a", connection))
    journal.know(4, who("a", 1))
    journal.record(finished(1), 1.0)
    journal.record(finished(3, cancelled=True), 2.0)
    journal.record(Failed(2, "engine_failed", "it died", {}), 3.0)
    journal.record(Accepted(4, 0), 4.0)
    assert journal.ended("a", 1) == 3
    assert journal.ended("a", 2) == 2
    assert journal.ended("a") == 2
    assert journal.ended("a", 3) is None
    assert journal.ended("b") is None


def test_evictions_of_a_second_are_one_entry() -> None:
    journal = Journal()

    def evict(at: float, pages: int, *, idle: bool = False) -> list[Evicted]:
        events = [Evicted(pages, 1, 0)] if pages else []
        journal.evicted(events, at, idle=idle)
        told = [journal[number].event for number in range(journal.start, journal.end)]
        return [event for event in told if isinstance(event, Evicted)]

    assert evict(100.0, 3) == [Evicted(3, 1, 0)]
    assert len(evict(100.2, 2)) == len(evict(100.9, 5)) == 1
    assert evict(101.1, 1)[1:] == [Evicted(8, 3, 0)]
    assert len(evict(101.2, 4)) == 2
    assert evict(101.3, 0, idle=True)[2:] == [Evicted(4, 1, 0)], "no step comes soon to tell it"
    assert len(evict(105.0, 0)) == 3, "nothing was evicted"


def test_a_lost_engine_takes_its_names_along() -> None:
    journal = Journal()
    journal.know(1, who("a"))
    journal.forget_all()
    assert journal.record(Accepted(1, 0), 1.0).who is None
