"""Who gives way first, by each policy, and who is spared."""

from __future__ import annotations

import pytest

from pagedd.config.options import BY_NAME
from pagedd.core.costs import Costs
from pagedd.core.memory import Memory
from pagedd.core.policies import MAX_PREEMPTIONS, POLICIES, most_protected_first, ranking
from pagedd.core.request import Request, SamplingParams
from pagedd.core.sequence import Group, Sequence
from tests.core.world import World, config, prompt


class Crowd:
    """Sequences with pages of four tokens."""

    def __init__(self) -> None:
        self.memory = Memory(40, 4, b"key", True)
        self.count = 0

    def add(self, drawn: int = 0, pages: int = 1, computed: int = 4, priority: int = 0) -> Sequence:
        request = Request(self.count, (1,), SamplingParams(max_tokens=99), priority)
        made = Group(request, self.count, 0.0, frozenset(), 99).sequences[0]
        self.count += 1
        made.tokens += [2] * drawn
        made.num_computed = computed
        for _ in range(pages):
            page = self.memory.pool.allocate()
            assert page is not None
            made.table.append(page)
        return made

    def victims(self, policy: str, *sequences: Sequence) -> list[Sequence]:
        return sorted(sequences, key=ranking(POLICIES[policy], Costs(self.memory, "recompute", 0)))


def test_length_takes_the_one_that_has_drawn_least_then_the_latest() -> None:
    crowd = Crowd()
    much, little, as_little = crowd.add(drawn=5), crowd.add(drawn=1), crowd.add(drawn=1)
    assert crowd.victims("length", much, little, as_little) == [as_little, little, much]


def test_arrival_takes_the_latest() -> None:
    crowd = Crowd()
    first, second, third = crowd.add(drawn=1), crowd.add(), crowd.add(drawn=9)
    assert crowd.victims("arrival", second, first, third) == [third, second, first]


def test_cost_takes_what_is_cheap_to_restore_for_what_it_frees() -> None:
    crowd = Crowd()
    dear, cheap = crowd.add(pages=3, computed=12), crowd.add(pages=3, computed=9)
    bare = crowd.add(pages=2, computed=8)
    for page in bare.table.pages:
        crowd.memory.pool.retain(page)  # shared: to preempt it would free nothing
    assert crowd.victims("cost", bare, dear, cheap) == [cheap, dear, bare]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_priority_comes_before_every_policy_and_before_protection(policy: str) -> None:
    crowd = Crowd()
    urgent = crowd.add(priority=-1, computed=1)
    low = crowd.add(drawn=20, priority=3, computed=4)
    low.preemptions = MAX_PREEMPTIONS
    assert crowd.victims(policy, urgent, low) == [low, urgent]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_who_gave_way_often_enough_is_spared_among_its_equals(policy: str) -> None:
    crowd = Crowd()
    dear, tired = crowd.add(drawn=5), crowd.add(computed=1)
    assert crowd.victims(policy, dear, tired) == [tired, dear]
    tired.preemptions = MAX_PREEMPTIONS
    assert crowd.victims(policy, dear, tired) == [dear, tired]
    dear.preemptions = MAX_PREEMPTIONS  # both: somebody has to
    assert crowd.victims(policy, dear, tired) == [tired, dear]


def test_the_head_stays_whatever_the_policy_says() -> None:
    crowd = Crowd()
    head, middle, last = crowd.add(drawn=0), crowd.add(drawn=3), crowd.add(drawn=1)
    by_arrival = ranking(POLICIES["arrival"], Costs(crowd.memory, "recompute", 0))
    assert most_protected_first([head, middle, last], by_arrival) == [head, middle, last]
    by_length = ranking(POLICIES["length"], Costs(crowd.memory, "recompute", 0))
    assert most_protected_first([head, last, middle], by_length) == [head, middle, last]


@pytest.mark.parametrize(("policy", "victim"), [("cost", 2), ("arrival", 3)])
def test_the_configured_policy_decides(policy: str, victim: int) -> None:
    """The second request has just begun its last page when pages run short: it is the cheapest."""
    world = World(config(num_pages=14, preemption_policy=policy))
    for which, length in enumerate((4, 5, 7)):
        world.submit(prompt(which, length), max_tokens=24, ignore_eos=True)
    while not world.scheduler.stats().preemptions_recompute:
        world.step()
    assert [handle for handle, story in world.stories.items() if story.away] == [victim]
    world.run()


def test_the_option_names_every_policy() -> None:
    option = BY_NAME["preemption-policy"]
    assert sorted(option.kind.choices) == sorted(POLICIES)
    assert option.default == config().__class__.__dataclass_fields__["preemption_policy"].default
