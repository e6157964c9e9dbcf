"""The load: prompts of random tokens, lengths drawn around a mean, arrivals. Reproducible."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from pagedd.bench.words import WORDS
from pagedd.errors import UsageError

# Spread of the log-normal: the standard deviation of the logarithm. Half of the lengths lie
# within -29% and +40% of the median.
SIGMA = 0.5
# Vocabularies keep their special tokens at the ends; prompts are drawn from what is between.
MARGIN = 0.05
# Of the lengths that are drawn evenly: how far from the mean, as a share of it.
SWING = 0.25


@dataclass(frozen=True, slots=True)
class Workload:
    """What to send. Lengths in tokens are means; exactly one of the two rates is set."""

    num_requests: int
    concurrency: int | None
    request_rate: float | None  # requests per second, arrivals of a Poisson process
    input_len: int
    output_len: int
    fixed_len: bool
    prefix_len: int  # tokens at the beginning that all prompts share, within input_len
    seed: int
    temperature: float
    text: bool = False  # prompts are words, counted instead of tokens, and each side splits them


class Item(NamedTuple):
    """One request. ``at``: seconds after the start; 0 where concurrency sets the pace."""

    prompt: list[int]
    output_len: int
    at: float
    text: str | None = None  # sent instead of ``prompt``


def make_items(load: Workload, vocab_size: int, max_model_len: int) -> list[Item]:
    """The same list for the same arguments; of words where ``load.text``, whatever the vocabulary.

    Lengths are cut so that a prompt leaves room for its output. Errors: ``UsageError`` when the
    means themselves do not fit.
    """
    if load.input_len + load.output_len > max_model_len:
        raise UsageError(
            f"--input-len {load.input_len} and --output-len {load.output_len} do not fit in the "
            f"model's {max_model_len} tokens"
        )
    if load.prefix_len >= load.input_len:
        raise UsageError(f"--prefix-len must be less than --input-len {load.input_len}")
    draw = random.Random(load.seed)
    prefix = _prompt(draw, load, load.prefix_len, vocab_size)
    items, at = [], 0.0
    for _ in range(load.num_requests):
        output = min(_length(draw, load.output_len, load.fixed_len), max_model_len // 2)
        longest = max_model_len - output
        length = min(max(_length(draw, load.input_len, load.fixed_len), len(prefix) + 1), longest)
        if load.fixed_len:
            output, length = load.output_len, load.input_len
        whole = prefix + _prompt(draw, load, length - len(prefix), vocab_size)
        if load.text:
            text = " ".join(WORDS[each] for each in whole)
            items.append(Item([], output, at, text))
        else:
            items.append(Item(whole, output, at))
        if load.request_rate is not None:
            at += draw.expovariate(load.request_rate)
    return items


def load_id(items: Sequence[Item]) -> str:
    """A name for exactly these requests: two runs that show the same one had the same load."""
    return hashlib.sha256(msgspec.json.encode(items)).hexdigest()[:12]


def random_tokens(draw: random.Random, count: int, vocab_size: int) -> list[int]:
    """Ids that are no special tokens."""
    low, high = int(vocab_size * MARGIN), max(int(vocab_size * (1 - MARGIN)), 1)
    return [draw.randrange(low, high) for _ in range(count)]


def around(draw: random.Random, mean: int, count: int) -> list[int]:
    """``count`` lengths, all equally likely within SWING of ``mean``.

    They come in pairs that add up to twice the mean, so the mean of an even number is exact.
    """
    lengths: list[int] = []
    reach = int(mean * SWING)
    while len(lengths) < count:
        off = draw.randint(0, reach)
        lengths += [mean - off, mean + off]
    del lengths[count:]
    draw.shuffle(lengths)
    return lengths


def all_at_once(items: Sequence[Item], seed: int) -> Workload:
    """How to send ``items`` that were made in another way: greedy, and nobody waits to be sent."""
    count = len(items)
    return Workload(
        num_requests=count,
        concurrency=count,
        request_rate=None,
        input_len=round(sum(len(item.prompt) for item in items) / count),
        output_len=round(sum(item.output_len for item in items) / count),
        fixed_len=False,
        prefix_len=0,
        seed=seed,
        temperature=0.0,
    )


def check_fit(items: Sequence[Item], max_model_len: int) -> None:
    """Errors: ``UsageError`` when one of ``items`` is longer than a sequence may be."""
    longest = max(len(item.prompt) + item.output_len for item in items)
    if longest > max_model_len:
        raise UsageError(
            f"the longest request has {longest} tokens, more than the {max_model_len} of a sequence"
        )


def _prompt(draw: random.Random, load: Workload, count: int, vocab_size: int) -> list[int]:
    """``count`` ids, or places in WORDS where the prompts are text."""
    if load.text:
        return [draw.randrange(len(WORDS)) for _ in range(count)]
    return random_tokens(draw, count, vocab_size)


def _length(draw: random.Random, mean: int, fixed: bool) -> int:
    """A log-normal length with this mean, at least 1."""
    if fixed:
        return mean
    mu = math.log(mean) - SIGMA * SIGMA / 2
    return max(1, round(draw.lognormvariate(mu, SIGMA)))
