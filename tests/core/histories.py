"""Random histories: limits and happenings read from bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from pagedd.core.policies import POLICIES
from tests.core.world import World, config

LIMITS = st.binary(min_size=6, max_size=6)
MODE = st.binary(min_size=2, max_size=2)
PUSHES = st.lists(st.binary(min_size=8, max_size=8), min_size=20, max_size=60)
HAPPENINGS = st.lists(st.binary(min_size=8, max_size=8), min_size=6, max_size=30)

REPEATABLE = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

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
        swap_in_pages=(None, 1, 3)[digits.below(3)],
        page_bytes=world.config.page_size * 1_500_000,
    )
    return World(limits)


def tense_world_of(value: bytes) -> World:
    """Few pages for many that grow: they give way again and again."""
    digits = Digits(value)
    page_size = (2, 1, 4)[digits.below(3)]
    limits = config(
        page_size=page_size,
        num_pages=digits.below(11) + 6,
        max_num_seqs=digits.below(5) + 2,
        max_num_batched_tokens=(8, 3, 5, 40)[digits.below(4)],
        prefix_cache=digits.below(2) == 1,
        watermark=(0.01, 0.0, 0.25)[digits.below(3)],
        preemption_policy=sorted(POLICIES)[digits.below(len(POLICIES))],
        priority_aging=(None, 0.05, 0.3)[digits.below(3)],
        fair_share=digits.below(2) == 1,
        num_host_pages=(0, 4, 20)[digits.below(3)],
        preemption_mode=("swap", "auto", "recompute")[digits.below(3)],
        swap_in_ahead=digits.below(2) == 1,
        swap_in_pages=(None, 1, 3)[digits.below(3)],
        page_bytes=page_size * 1_500_000,
    )
    return World(limits)


def push(world: World, value: bytes) -> None:
    """Another request that goes on for long, some steps, or another priority."""
    digits = Digits(value)
    kind = digits.below(20)
    going = [handle for handle, story in world.stories.items() if not story.over]
    if kind < 7 and len(going) < 8:
        submit(world, digits, long=True)
    elif kind < 17 or not going:
        for _ in range(digits.below(6) + 1):
            world.step()
    else:
        handle = going[digits.below(len(going))]
        command = (world.reprioritize, handle, (0, 0, 1, -1)[digits.below(4)])
        world.step(command)


def act(world: World, value: bytes) -> None:
    """One thing that happens: a submit, some steps, or a command, perhaps in mid-step."""
    digits = Digits(value)
    kind = digits.below(12)
    if kind < 5:
        submit(world, digits)
    elif kind < 7:
        for _ in range(digits.below(6) + 1):
            world.step()
    elif kind == 7:
        world.wait((0.02, 0.4, 1000.0)[digits.below(3)])
    else:
        handle = max(len(world.stories) - digits.below(4), 0)
        index = digits.below(4)
        in_flight = digits.below(2)
        priority = (0, 1, -1, 2, -2, -(2**31), 2**31 - 1)[digits.below(7)]
        command: tuple[Any, ...] = (
            (world.cancel, handle),
            (world.end_choice, handle, index),
            (world.reprioritize, handle, priority),
            (world.explain, handle),
        )[kind - 8]
        if in_flight:
            world.step(command)
        else:
            command[0](*command[1:])
            world._observe()


def submit(world: World, digits: Digits, *, long: bool = False) -> None:
    base = BASES[digits.below(3)]
    n = (1, 1, 1, 2, 3, 4)[digits.below(6)]
    longest = world.config.max_sequence_len  # one more than what fits
    world.submit(
        base[: digits.below(min(longest, 12 if long else 32)) + 1],
        n=min(n, world.config.max_num_seqs) if digits.below(8) else n,
        max_tokens=digits.below(24) + (16 if long else 1),
        priority=(0, 0, 1, -1, 3, -2)[digits.below(6)],
        client=("a", "b", "c")[digits.below(3)],
        seed=digits.below(64),
        ignore_eos=long or digits.below(2) == 1,
        salt=(b"", b"", b"s")[digits.below(3)],
        min_tokens=(0, 0, 2)[digits.below(3)],
        stop_token_ids=() if long else ((), (), (3,), (0, 4))[digits.below(4)],
    )


def finish(world: World) -> None:
    """Everything that was accepted ends, within a bound that its own size gives."""
    work = sum(
        s.request.params.n * (len(s.request.prompt) + s.request.params.max_tokens)
        for s in world.stories.values()
    )
    world.run(limit=20 + 3 * work)
    assert max(world.umpire.gave_way.values(), default=0) <= 10
