"""Sequence: one sampled continuation of a request; Group: the sequences of one request."""

from __future__ import annotations

from enum import StrEnum

from pagedd.core.clients import Account
from pagedd.core.ledger import Book, Phase
from pagedd.core.page_table import PageTable
from pagedd.core.request import Request

Order = tuple[int, int, int]  # priority, arrival, choice: the smaller, the more urgent
PENDING = -1  # stands for a token that the device draws, or has drawn without anybody knowing


class SequenceState(StrEnum):
    """Where a sequence is; the values are those of ``state`` in a state frame."""

    WAITING = "waiting"  # its first chunk was not scheduled yet
    PREFILLING = "prefilling"  # in a slot, drew no token since it took it
    DECODING = "decoding"  # in a slot, draws a token in each step
    PREEMPTED = "preempted"  # gave its slot and pages back, to continue later
    SWAPPED = "swapped"  # the same, and what it had computed is in host memory
    ENDED = "ended"


class Group:
    """A request in service: what its sequences have in common.

    Until the prompt is computed there is only sequence 0; it *forks* into all n with the chunk
    that ends the prompt. ``reserved`` are the slots kept for the others until then.
    """

    __slots__ = (
        "account",
        "active",
        "arrival",
        "asked",
        "book",
        "cached_tokens",
        "charged",
        "decoding",
        "early",
        "ends",
        "forked",
        "max_tokens",
        "open",
        "priority",
        "request",
        "reserved",
        "sequences",
        "started",
    )

    def __init__(
        self,
        request: Request,
        arrival: int,
        now: float,
        eos_ids: frozenset[int],
        limit: int,
        account: Account | None = None,
    ) -> None:
        params = request.params
        self.request = request
        self.arrival = arrival  # counts the submitted requests
        self.asked = request.priority  # the priority that the client asked for last
        self.priority = request.priority  # the same, less the levels that waiting has gained
        self.account = account  # of its client, where clients take turns
        self.charged = False  # for its prompt
        self.book = Book(now)
        self.started = False
        self.forked = params.n == 1
        self.cached_tokens = 0  # found in the index when it began
        self.open = params.n  # choices that have not ended
        self.active = 0  # sequences the runner knows
        self.decoding = 0  # of these, those that decode
        self.early: set[int] = set()  # choices ended before the fork
        self.reserved: list[int] = []
        # What ends a choice, made ready for the check of every token.
        self.ends = frozenset(params.stop_token_ids) | (
            frozenset() if params.ignore_eos else eos_ids
        )
        self.max_tokens = min(len(request.prompt) + params.max_tokens, limit)
        self.sequences = [Sequence(self, 0, list(request.prompt))]

    @property
    def remaining(self) -> list[Sequence]:
        """The sequences that have not ended."""
        return [each for each in self.sequences if each.state is not SequenceState.ENDED]

    def settle(self, now: float) -> None:
        """Let the time from ``now`` on count for what the request does now."""
        if not self.started:
            phase = Phase.QUEUED
        elif self.active == 0:
            phase = Phase.PREEMPTED
        else:
            phase = Phase.DECODE if self.decoding else Phase.PREFILL
        self.book.enter(phase, now)


class Sequence:
    """One continuation: its tokens, how many of them are in the cache, and where.

    ``tokens[:num_computed]`` have their KV in the pages of ``table``. A slot of -1 is none.
    ``order`` sorts by urgency: priority, then arrival, then choice.
    """

    __slots__ = (
        "arrived",
        "group",
        "host",
        "host_start",
        "index",
        "joined",
        "keys",
        "num_computed",
        "num_indexed",
        "num_saved",
        "order",
        "preemptions",
        "samples",
        "seen",
        "slot",
        "state",
        "table",
        "tokens",
    )

    def __init__(self, group: Group, index: int, tokens: list[int]) -> None:
        self.group = group
        self.index = index
        self.tokens = tokens  # the prompt, then what was drawn; perhaps PENDING at the very end
        self.num_computed = 0
        self.seen = 0  # the most that num_computed ever was
        self.table = PageTable()
        # Host pages up to tokens[:num_saved], of the logical pages from host_start on: all of it
        # when the sequence is swapped; else what it found there, until it is copied in.
        self.host: list[int] = []
        self.host_start = 0
        self.arrived = 0  # first pages of the table that hold what they should, or will in a step
        self.num_saved = 0
        self.keys: list[bytes] = []  # of the first full pages; may be behind or ahead of the table
        self.num_indexed = 0  # full pages of the table that were offered to the index
        self.slot = -1
        self.samples: tuple[int, ...] = ()  # (slot,): made once, named in every plan
        self.preemptions = 0
        self.joined = False  # the runner knows it
        self.state = SequenceState.WAITING
        self.order = self.order_now()

    def order_now(self) -> Order:
        """What ``order`` has to be. It is changed only while no queue holds the sequence."""
        return (self.group.priority, self.group.arrival, self.index)

    @property
    def priority(self) -> int:
        """Smaller is more urgent."""
        return self.order[0]

    @property
    def asked(self) -> int:
        """The priority that the client asked for. What is less urgent may be displaced."""
        return self.group.asked

    @property
    def claim(self) -> tuple[int, int, int, int]:
        """What is sorted by for displacing others: as ``order``, after what was asked for."""
        return (self.group.asked, *self.order)

    @property
    def handle(self) -> int:
        """The request's handle."""
        return self.group.request.handle

    @property
    def num_tokens(self) -> int:
        """Tokens known: prompt and drawn, the pending one too."""
        return len(self.tokens)

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.group.request.prompt)

    @property
    def num_generated(self) -> int:
        """Tokens drawn."""
        return len(self.tokens) - len(self.group.request.prompt)

    @property
    def missing(self) -> int:
        """Tokens known whose KV is not computed; at least 1 until the sequence ends."""
        return len(self.tokens) - self.num_computed

    @property
    def has_begun(self) -> bool:
        """It waits to go on, not to begin."""
        return self.state in (SequenceState.PREEMPTED, SequenceState.SWAPPED)

    @property
    def slots_needed(self) -> int:
        """Slots to take at admission: all n when it has still to fork."""
        return 1 if self.group.forked else self.group.request.params.n
