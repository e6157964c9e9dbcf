"""A runner on symbolic memory, and the oracle that its results are compared with.

A cell of a page holds one integer: a hash of the whole token history up to and including its
position. So a cell proves its token, its position and everything before it, and a comparison of
integers shows whether a row would read exactly the KV that it should.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pagedd.core.plan import Chunk, Copy, Join, Sampled, StepPlan, StepResult
from pagedd.core.request import Request, SamplingParams
from pagedd.core.scheduler import SchedulerConfig

VOCAB = 11
EOS = frozenset({0})
INVALID = 13  # a seed with this remainder by 16 has no valid logits for the third token


def extend_history(history: list[int], tokens: list[int]) -> None:
    """Bring ``history``, a cell value per position, to the length of ``tokens``."""
    for token in tokens[len(history) :]:
        history.append(hash((history[-1] if history else 1, token)))


def draw(history: int, index: int, generated: int, params: SamplingParams) -> int:
    """The next token as a function of all tokens so far, the seed and the choice; -1: invalid."""
    seed = params.seed or 0
    if seed % 16 == INVALID and generated == 2:
        return -1
    token = hash((history, seed, index)) % VOCAB
    if generated < params.min_tokens:
        ends = EOS | set(params.stop_token_ids)
        while token in ends:
            token = (token + 1) % VOCAB
    return token


@dataclass
class Row:
    """What the persistent batch knows of one slot."""

    handle: int
    index: int
    params: SamplingParams
    num_prompt: int
    tokens: list[int]
    pages: list[int]
    history: list[int] = field(default_factory=list)


class SymbolicRunner:
    """Carries plans out in the order of their fields and checks everything it reads."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.page_size = config.page_size
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.cells: list[list[int]] = [[0] * config.page_size for _ in range(config.num_pages)]
        self.host: list[list[int]] = [[0] * config.page_size for _ in range(config.num_host_pages)]
        self.rows: list[Row | None] = [None] * config.max_num_seqs
        self.step = 0

    def execute(self, plan: StepPlan) -> StepResult:
        assert plan.step == self.step, "steps are numbered without gaps"
        self.step += 1
        assert plan.chunks, "a plan without work"
        assert plan.num_tokens <= self.max_num_batched_tokens
        late = self.move(plan)
        for chunk in plan.chunks:
            self._read(chunk)
        self._write(plan.chunks)
        self._move(late, self.host, self.cells)
        drawn = tuple(self._draw(slot, chunk) for chunk in plan.chunks for slot in chunk.samples)
        return StepResult(drawn, copied=len(plan.swap_out) + len(plan.swap_in))

    def move(self, plan: StepPlan) -> tuple[Copy, ...]:
        """All but the chunks; the copies in that may end with them."""
        self._move(plan.swap_out, self.cells, self.host)
        assert not {copy.dst for copy in plan.copies} & {copy.src for copy in plan.copies}
        self._move(plan.copies, self.cells, self.cells)
        late = self._late(plan)
        self._move(tuple(set(plan.swap_in) - set(late)), self.host, self.cells)
        for slot in plan.leave:
            assert self.rows[slot] is not None, "an empty slot was left"
            self.rows[slot] = None
        for join in plan.join:
            self._join(join)
        for slot, logical, page in plan.grow:
            pages = self._row(slot).pages
            assert logical <= len(pages), "a hole in a page table"
            pages[logical : logical + 1] = [page]
        return late

    def _row(self, slot: int) -> Row:
        row = self.rows[slot]
        assert row is not None, f"slot {slot} is empty"
        return row

    def _late(self, plan: StepPlan) -> tuple[Copy, ...]:
        """The copies in that nothing of this step reads: they end only with it."""
        own = {join.slot: join.pages for join in plan.join}
        now = {page for chunk in plan.chunks for page in own.get(chunk.slot, ())}
        return tuple(copy for copy in plan.swap_in if copy.dst not in now)

    def _move(
        self, copies: tuple[Copy, ...], sources: list[list[int]], targets: list[list[int]]
    ) -> None:
        """All at once, as a device does: a copy that reads another's target finds old content."""
        contents = [sources[copy.src][:] for copy in copies]
        assert len({copy.dst for copy in copies}) == len(copies)
        for copy, content in zip(copies, contents, strict=True):
            targets[copy.dst] = content

    def _join(self, join: Join) -> None:
        assert self.rows[join.slot] is None, f"slot {join.slot} is taken"
        row = Row(
            join.handle, join.index, join.params, join.num_prompt, list(join.tokens), [*join.pages]
        )
        extend_history(row.history, row.tokens)
        self.rows[join.slot] = row

    def _read(self, chunk: Chunk) -> None:
        """Every position before the chunk holds this sequence's own past."""
        row, size = self._row(chunk.slot), self.page_size
        assert 0 < chunk.length <= len(row.tokens) - chunk.start
        assert bool(chunk.samples) == (chunk.start + chunk.length == len(row.tokens))
        full, rest = divmod(chunk.start, size)
        for logical in range(full):
            first = logical * size
            assert self.cells[row.pages[logical]] == row.history[first : first + size]
        if rest:
            assert self.cells[row.pages[full]][:rest] == row.history[full * size : chunk.start]
        for slot in chunk.samples:
            other = self._row(slot)
            assert other.tokens == row.tokens
            assert slot == chunk.slot or other.pages == row.pages

    def _write(self, chunks: tuple[Chunk, ...]) -> None:
        written: set[tuple[int, int]] = set()
        for slot, start, length, _ in chunks:
            row = self._row(slot)
            for position in range(start, start + length):
                logical, offset = divmod(position, self.page_size)
                place = (row.pages[logical], offset)
                assert place not in written, "two rows write to one place"
                written.add(place)
                self.cells[place[0]][offset] = row.history[position]

    def _draw(self, slot: int, chunk: Chunk) -> Sampled:
        row = self._row(slot)
        generated = len(row.tokens) - row.num_prompt
        token = draw(row.history[-1], row.index, generated, row.params)
        if token >= 0:
            row.tokens.append(token)
            extend_history(row.history, row.tokens)
        return Sampled(slot, token)


@dataclass(frozen=True)
class Alone:
    """What one choice gives when its request runs alone, without limits but its own."""

    tokens: tuple[int, ...]
    finish: str | None  # None: it met invalid logits after these tokens
    stop: int | None


def run_alone(request: Request, index: int, config: SchedulerConfig) -> Alone:
    """The oracle: no pages, no batch, no cache."""
    params, tokens = request.params, list(request.prompt)
    limit = min(config.max_model_len, config.num_pages * config.page_size)
    history: list[int] = []
    while True:
        extend_history(history, tokens)
        generated = len(tokens) - len(request.prompt)
        token = draw(history[-1], index, generated, params)
        if token < 0:
            return Alone(tuple(tokens[len(request.prompt) :]), None, None)
        tokens.append(token)
        drawn = tuple(tokens[len(request.prompt) :])
        if len(drawn) >= params.min_tokens:
            if token in EOS and not params.ignore_eos:
                return Alone(drawn, "stop", None)
            if token in params.stop_token_ids:
                return Alone(drawn, "stop", token)
        if len(drawn) >= params.max_tokens or len(tokens) >= limit:
            return Alone(drawn, "length", None)
