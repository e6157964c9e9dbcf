"""Worlds with two tiers: a device pool that one long prompt fills, and host memory behind it."""

from __future__ import annotations

from tests.core.world import World, config, prompt

SYSTEM = prompt(0, 16)


def pool(**changes: object) -> World:
    """Twelve pages of four tokens, and steps that take any prompt at once."""
    values: dict[str, object] = {
        "num_pages": 12,
        "num_host_pages": 40,
        "max_num_batched_tokens": 80,
        "max_model_len": 80,
    }
    return World(config(**(values | changes)))


def serve(world: World, tokens: tuple[int, ...], **params: object) -> int:
    """One request alone, from beginning to end; the tokens it found."""
    handle = world.submit(tokens, **({"max_tokens": 1} | params))
    world.run()
    return world.stories[handle].cached_tokens


def copies(world: World, since: int = 0) -> tuple[int, int]:
    """Pages copied out and in by the plans from number ``since`` on."""
    plans = world.plans[since:]
    return sum(len(plan.swap_out) for plan in plans), sum(len(plan.swap_in) for plan in plans)
