"""Random histories: whatever is asked in whatever order, everybody gets what it would get alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pagedd.core.policies import POLICIES
from tests.core.world import World, config

BASES = ((1, 2, 3, 4, 5, 6) * 8, (1, 2, 3, 4, 9, 8) * 8, (7, 0, 7) * 16)


class Digits:
    """Reads bytes as digits of changing base; all zeros is the plainest history."""

    def __init__(self, value: bytes) -> None:
        self.value = int.from_bytes(value, "little")

    def below(self, base: int) -> int:
        self.value, digit = divmod(self.value, base)
        return digit


def world_of(value: bytes) -> World:
    digits = Digits(value)
    page_size = digits.below(5) + 1
    limits = config(
        page_size=page_size,
        num_pages=digits.below(14) + 2,
        max_num_seqs=digits.below(6) + 1,
        max_num_batched_tokens=(3, 1, 2, 5, 8, 16, 40)[digits.below(7)],
        prefix_cache=digits.below(4) != 3,
        watermark=(0.01, 0.0, 0.25)[digits.below(3)],
        max_model_len=(64, 20, 9)[digits.below(3)],
        max_queue=(64, 3)[digits.below(2)],
        preemption_policy=sorted(POLICIES)[digits.below(len(POLICIES))],
        priority_aging=(None, 0.05, 0.3)[digits.below(3)],
        fair_share=digits.below(2) == 1,
    )
    return World(limits)


def swap_world_of(value: bytes, mode: bytes) -> World:
    """The same with swap space; a page costs so much that ``auto`` goes either way."""
    digits, world = Digits(mode), world_of(value)
    limits = replace(
        world.config,
        num_host_pages=(3, 1, 2, 8, 100)[digits.below(5)],
        preemption_mode=("swap", "auto", "recompute")[digits.below(3)],
        swap_in_ahead=digits.below(2) == 1,
        page_bytes=world.config.page_size * 1_500_000,
    )
    return World(limits)


def act(world: World, value: bytes) -> None:
    """One thing that happens: a submit, some steps, or a command, perhaps in mid-step."""
    digits = Digits(value)
    kind = digits.below(9)
    if kind < 4:
        submit(world, digits)
    elif kind < 6:
        for _ in range(digits.below(6) + 1):
            world.step()
    else:
        handle = max(len(world.stories) - digits.below(4), 0)
        index = digits.below(4)
        in_flight = digits.below(2)
        command = (
            (world.cancel, handle),
            (world.end_choice, handle, index),
            (world.reprioritize, handle, digits.below(7) - 3),
        )[kind - 6]
        if in_flight:
            world.step(command)
        else:
            command[0](*command[1:])  # type: ignore[operator]
            world._observe()


def submit(world: World, digits: Digits) -> None:
    base = BASES[digits.below(3)]
    n = (1, 1, 1, 2, 3, 4)[digits.below(6)]
    longest = world.config.max_sequence_len  # one more than what fits
    world.submit(
        base[: digits.below(min(longest, 32)) + 1],
        n=min(n, world.config.max_num_seqs) if digits.below(8) else n,
        max_tokens=digits.below(24) + 1,
        priority=(0, 0, 0, 1, -1)[digits.below(5)],
        salt=(b"", b"", b"s")[digits.below(3)],
        min_tokens=(0, 0, 2)[digits.below(3)],
        ignore_eos=digits.below(2) == 1,
        stop_token_ids=((), (), (3,), (0, 4))[digits.below(4)],
        seed=digits.below(64),
        client=("a", "b", "c")[digits.below(3)],
    )


def finish(world: World) -> None:
    """Everything that was accepted ends, within a bound that its own size gives."""
    work = sum(
        s.request.params.n * (len(s.request.prompt) + s.request.params.max_tokens)
        for s in world.stories.values()
    )
    world.run(limit=20 + 3 * work)
    choices = sum(s.request.params.n for s in world.stories.values())
    stats = world.scheduler.stats()
    assert stats.preemptions_recompute + stats.preemptions_swap <= 10 * choices


@settings(
    max_examples=2000,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    limits=st.binary(min_size=6, max_size=6),
    happenings=st.lists(st.binary(min_size=8, max_size=8), min_size=6, max_size=30),
)
@example(  # a less urgent request is admitted while a more urgent one gives its pages
    limits=b"\xccP0\x8b\xb3",
    happenings=[
        b"+\x0b\xe1\xf9J\x89\x19",
        b"i\xcbx\xd2\x12\x10\xba",
        b"\xa3A,01\xff\xe7",
        b"\xdaB#@\xf6?\x9e",
        b"2D\xe0\x1aY\x0f\x13",
        b"Qh\xee\xe3\x19\x95\xc3",
        b"O\x1e\x89x\xb2U\x99",
        b"\xd7\x94\x9f\xf9\x1c\xfce",
        b"\xbc\xd7L\xb2m@:",
        b"\xd6\xfec'\xf8\xb2\x0b",
        b"\x13_>0Y\xf2Z",
        b"\xf3\xf3\xc3+\xfe\xa3'",
    ],
)
def test_everybody_gets_what_it_would_get_alone(limits: bytes, happenings: list[bytes]) -> None:
    world = world_of(limits)
    for value in happenings:
        act(world, value)
    finish(world)


@settings(
    max_examples=2000,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    limits=st.binary(min_size=6, max_size=6),
    mode=st.binary(min_size=1, max_size=1),
    happenings=st.lists(st.binary(min_size=8, max_size=8), min_size=6, max_size=30),
)
def test_swapping_changes_nothing_for_anybody(
    limits: bytes, mode: bytes, happenings: list[bytes]
) -> None:
    world = swap_world_of(limits, mode)
    for value in happenings:
        act(world, value)
    finish(world)
