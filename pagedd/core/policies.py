"""Who is preempted first: one sort key a policy.

A policy gives a sequence a key; the smallest key is preempted first. Before the key comes always
the priority, negated, so that no policy takes from the more urgent for the less urgent, and then
whether the sequence has given way often enough. To add a policy: write the key, name it in
``POLICIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from pagedd.core.costs import Costs
from pagedd.core.sequence import Sequence

Key = tuple[float, ...]
Policy = Callable[[Sequence, Costs], Key]
Rank = Callable[[Sequence], Key]

# Who was preempted so often gives way only when all others of its priority were too.
MAX_PREEMPTIONS = 4


def least_generated(sequence: Sequence, costs: Costs) -> Key:
    """The one that has drawn least, then the latest: it has the least to bring back."""
    return (sequence.num_generated, *latest_arrival(sequence, costs))


def latest_arrival(sequence: Sequence, costs: Costs) -> Key:
    """The one that came last (of siblings, the last choice)."""
    _, arrival, index = sequence.order
    return (-arrival, -index)


def least_cost(sequence: Sequence, costs: Costs) -> Key:
    """The one that takes the least estimated time to bring back for each page it frees."""
    return (costs.per_page_freed(sequence), *latest_arrival(sequence, costs))


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "length": least_generated,
        "arrival": latest_arrival,
        "cost": least_cost,
    }
)


def ranking(policy: Policy, costs: Costs) -> Rank:
    """``policy`` as a sort key, after the priority and the protection that precede every policy."""

    def rank(sequence: Sequence) -> Key:
        protected = sequence.preemptions >= MAX_PREEMPTIONS
        return (-sequence.priority, protected, *policy(sequence, costs))

    return rank


def most_protected_first(sequences: Iterable[Sequence], rank: Rank) -> list[Sequence]:
    """``sequences`` (the most urgent first) in the reverse of the order of preemption.

    The first of them stays first whatever the policy says: the most urgent, oldest sequence is
    never a victim, which is what guarantees progress.
    """
    head, *rest = sequences
    return [head, *sorted(rest, key=rank, reverse=True)]
