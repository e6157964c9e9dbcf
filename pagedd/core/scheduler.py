"""Scheduler: decides one step at a time.

``plan`` and ``commit`` alternate; commands may come at any time between. A command that ends a
sequence while its step runs takes effect at the commit, so that no page, and no slot, that the
plan names is given to anybody else meanwhile.

Where the device works through a queue, ``commit`` comes in halves, so that the next step is decided
and launched while one runs::

    plan 1 → launched 1 → plan 2 → collected 1 → launched 2 → plan 3 → collected 2 → …

Then a sequence that ends with step 1 may have a chunk in step 2, which is wasted: it has given back
its pages, and what step 3 writes on them comes later in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagedd.core import audit
from pagedd.core.admission import admit_urgent, admit_waiting
from pagedd.core.config import SchedulerConfig
from pagedd.core.draft import Draft
from pagedd.core.events import Accepted, Failed, Stats, StepEvents
from pagedd.core.explain import explain, note_waiting
from pagedd.core.outcome import Launched, collect, launch
from pagedd.core.plan import StepPlan, StepResult
from pagedd.core.policies import POLICIES, ranking
from pagedd.core.priority import age, prioritize
from pagedd.core.request import Request
from pagedd.core.room import Room
from pagedd.core.running import compute_running
from pagedd.core.shortage import Allowance, give_up, make_smaller
from pagedd.core.snapshot import Snapshot, take_snapshot
from pagedd.core.state import SchedulerState
from pagedd.core.watch import Changes, Watch
from pagedd.core.wording import counted
from pagedd.errors import BadRequest, PromptTooLong, QueueFull

__all__ = ["Scheduler", "SchedulerConfig"]


class Scheduler:
    """Owns what waits and what runs. Times are seconds of any clock that never goes back.

    ``key`` (at most 64 bytes, random) keeps the digests of the prefix index unpredictable.
    """

    def __init__(self, config: SchedulerConfig, *, key: bytes) -> None:
        self._state = SchedulerState(config, key)
        self._rank = ranking(POLICIES[config.preemption_policy], self._state.costs)
        self._allowance = Allowance(config.max_num_batched_tokens)
        self._step = 0
        self._in_flight: StepPlan | None = None  # made, and not launched
        self._launched: Launched | None = None
        self._given_up: StepPlan | None = None  # and nothing was planned since
        self._overtaken = False  # the step before was collected after the plan was made
        self._deferred: list[tuple[int, int | None]] = []  # handle, choice or all of them
        self._watch: Watch | None = None
        self._room = Room()

    @property
    def config(self) -> SchedulerConfig:
        """The limits it keeps to."""
        return self._state.config

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._state.groups

    def submit(self, request: Request, now: float, *, again: bool = False) -> None:
        """Take ``request`` into the queue (event ``accepted``) or refuse it (``failed``).

        ``again``: it was taken once, and finds room whatever the queue's limit is.
        """
        state = self._state
        assert request.handle not in state.groups, f"handle {request.handle} is in use"
        state.now = now
        refusal = self._refusal(request, again)
        if refusal is not None:
            state.refuse(refusal)
        else:
            state.events.accepted.append(Accepted(request.handle, state.enqueue(request)))

    def refuse(self, failed: Failed, now: float) -> None:
        """A request that was not submitted ends with an error (event ``failed``)."""
        self._state.now = now
        self._state.refuse(failed)

    def cancel(self, handle: int, now: float) -> None:
        """End a request (event ``finished``, ``cancelled``). Nothing if it is not known."""
        self._command(handle, None, now)

    def end_choice(self, handle: int, index: int, now: float) -> None:
        """A choice needs no more tokens. Nothing if it has ended."""
        self._command(handle, index, now)

    def reprioritize(self, handle: int, priority: int, now: float) -> None:
        """Another priority (event ``reprioritized``). Nothing if it is not known.

        It takes effect at once, also while a step runs: it moves no page and no slot, only the
        next plan does.
        """
        state = self._state
        state.now = now
        group = state.groups.get(handle)
        if group is not None:
            prioritize(state, group, priority)

    def explain(self, handle: int, ref: int, now: float) -> None:
        """Say why a request is where it is (event ``explained``, state "" if it is not known)."""
        state = self._state
        state.now = now
        state.events.explained.append(explain(state, handle, ref, self._in_flight))

    def plan(self, now: float) -> StepPlan | None:
        """Decide the next step. It is to be launched or committed before the next call.

        None when idle, or when all that could go on waits for the outcome of a launched step.
        """
        assert self._in_flight is None, "the last plan was not committed"
        state = self._state
        state.now = now
        given_up, self._given_up = self._given_up, None
        if not state.groups:
            return None
        age(state)
        draft = Draft(state, self._step, self._allowance.rows)
        before = state.put_backs
        if given_up is not None:
            make_smaller(state, given_up, self._rank, self._allowance.rows)
        admit_urgent(state, draft, self._rank)
        compute_running(state, draft, self._rank)
        if state.put_backs == before:  # who has just given way does not come back in the same step
            note_waiting(state, admit_waiting(state, draft))
        draft.close()
        state.settle()
        if draft.is_empty:
            assert self._launched is not None, "there is work, but nobody can go on"
            return None
        self._overtaken = False
        self._step += 1
        state.totals.steps += 1
        self._in_flight = draft.plan()
        return self._in_flight

    def commit(
        self,
        plan: StepPlan,
        result: StepResult,
        now: float,
        phases: Mapping[str, float] | None = None,
    ) -> None:
        """Take in what the runner made of ``plan``, the last one: both halves at once."""
        self.launched(plan, now)
        self.collected(plan, result, now, phases)

    def launched(self, plan: StepPlan, now: float) -> None:
        """The device has got ``plan``, the last one, and carries it out after all before it."""
        assert plan is self._in_flight, "a plan is committed once, right after it was carried out"
        assert self._launched is None, "the step before was not collected"
        state = self._state
        state.now = now
        self._in_flight = None
        self._launched = launch(state, plan)
        self._apply_deferred(now)

    def collected(
        self,
        plan: StepPlan,
        result: StepResult,
        now: float,
        phases: Mapping[str, float] | None = None,
    ) -> None:
        """Take in what ``plan``, the launched one, has drawn. Another may have been made since.

        ``phases`` are the seconds it took, for the estimates that preemptions are decided by.
        """
        launched, self._launched = self._launched, None
        assert launched is not None, "no step is under way"
        assert plan is launched.plan, "steps end in the order in which they were launched"
        drawing = len(launched.drawing)
        assert len(result.sampled) == drawing, "the runner drew for others than it was asked to"
        state = self._state
        state.now = now
        self._overtaken = self._in_flight is not None
        if phases is not None:
            state.costs.learn(plan, phases, result.copied)
        collect(state, launched, result.sampled)
        self._allowance.went_well()

    def abandoned(self, plan: StepPlan, now: float) -> None:
        """There was no memory to compute ``plan``, the last one: see ``plan.NoMemory``.

        Instead of launching it. The step before has been collected, and the next is smaller.
        """
        assert plan is self._in_flight, "a plan is given up once, before it is launched"
        assert self._launched is None, "the step before was not collected"
        state = self._state
        state.now = now
        self._in_flight = None
        self._given_up = plan
        give_up(state, plan, self._allowance)
        self._apply_deferred(now)

    def take_events(self) -> StepEvents:
        """The events since the last call."""
        events, self._state.events = self._state.events, StepEvents()
        return events

    def stats(self) -> Stats:
        """The counters, in constant time but for rare looks at all that run."""
        return self._state.stats()

    def snapshot(self) -> Snapshot:
        """A picture of all pages and sequences, in time proportional to them."""
        return take_snapshot(self._state)

    def watch(self, *, wanted: bool) -> None:
        """Begin to collect changes, anew if that was done already, or end it."""
        if self._watch is not None:
            self._watch.end()
        self._watch = Watch(self._state.memory, self._state.groups) if wanted else None

    def look(self) -> Changes | None:
        """What has changed since the last look, everything at the first; None without a watch."""
        if self._watch is None:
            return None
        return self._watch.look(self._state.now)

    def audit(self) -> None:
        """Check every invariant; raises AssertionError with the one that is broken."""
        under_way = self._in_flight is not None or self._launched is not None
        audit.check_state(self._state, under_way)
        if self._in_flight is not None:
            audit.check_plan(self._state, self._in_flight, self._overtaken)

    def _apply_deferred(self, now: float) -> None:
        deferred, self._deferred = self._deferred, []
        for handle, index in deferred:
            self._command(handle, index, now)

    def _command(self, handle: int, index: int | None, now: float) -> None:
        state = self._state
        state.now = now
        group = state.groups.get(handle)
        if group is None:
            return
        if self._in_flight is not None:
            self._deferred.append((handle, index))
        elif index is None:
            state.finish(group, cancelled=True)
        else:
            state.end_choice(group, index)

    def _refusal(self, request: Request, again: bool) -> Failed | None:
        """Why ``request`` can never be served, or not now."""
        config, num_prompt = self._state.config, len(request.prompt)
        if num_prompt == 0:
            return Failed(request.handle, BadRequest.code, "the prompt holds no token", {})
        if not 1 <= request.params.n <= config.max_num_seqs:
            message = f"n is {request.params.n}; it must lie in 1 to {config.max_num_seqs}"
            detail = {"n": request.params.n, "max_num_seqs": config.max_num_seqs}
            return Failed(request.handle, BadRequest.code, message, detail)
        if num_prompt + 1 > config.max_sequence_len:
            pool = config.num_pages * config.page_size
            message = (
                f"the prompt has {num_prompt} tokens and needs room for one more, but a sequence "
                f"can have {config.max_sequence_len} (the model {config.max_model_len}, the cache "
                f"{config.num_pages} pages of {config.page_size}: {pool})"
            )
            detail = {
                "prompt_tokens": num_prompt,
                "max_model_len": config.max_model_len,
                "pool_tokens": pool,
            }
            return Failed(request.handle, PromptTooLong.code, message, detail)
        waiting = self._state.num_waiting
        if waiting >= config.max_queue and not again:
            waits = counted(waiting, "request", do="are waiting", does="is waiting")
            message = f"{waits}; the queue takes {config.max_queue}"
            detail = {"waiting": waiting, "max_queue": config.max_queue}
            wait = self._room.wait_ms(self._state)
            return Failed(request.handle, QueueFull.code, message, detail, wait)
        return None
