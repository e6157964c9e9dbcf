"""Who is preempted first: one sort key a policy.

A policy gives a sequence a key; the smallest key is preempted first. Its first part is always the
priority, negated, so that no policy takes from the more urgent for the less urgent. To add one:
write the key, name it in ``POLICIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from pagedd.core.sequence import Sequence

Policy = Callable[[Sequence], tuple[float, ...]]


def latest_arrival(sequence: Sequence) -> tuple[float, ...]:
    """The least urgent, then the one that came last (of siblings, the last choice)."""
    priority, arrival, index = sequence.order
    return (-priority, -arrival, -index)


POLICIES: Mapping[str, Policy] = MappingProxyType({"arrival": latest_arrival})


def most_protected_first(sequences: Iterable[Sequence], policy: Policy) -> list[Sequence]:
    """``sequences`` (the most urgent first) in the reverse of the order of preemption.

    The first of them stays first whatever the policy says: the most urgent, oldest sequence is
    never a victim, which is what guarantees progress.
    """
    head, *rest = sequences
    return [head, *sorted(rest, key=policy, reverse=True)]
