"""The real scheduler on a simulated device, which takes its time and computes nothing."""

from __future__ import annotations

from collections import deque
from random import Random

from pagedd.core.events import Explained, StepEvents
from pagedd.core.plan import Sampled, StepPlan, StepResult
from pagedd.core.scheduler import Scheduler, SchedulerConfig
from pagedd.core.watch import Changes
from pagedd.protocol import Counters
from pagedd_tui.demo_events import Who
from pagedd_tui.demo_load import Load

STEP_S = 0.05  # of the simulated time
PAGE_SIZE = 16
PAGE_BYTES = 1_500_000
CONFIG = SchedulerConfig(
    num_pages=600,  # fewer than the requests ask for
    page_size=PAGE_SIZE,
    max_num_seqs=32,
    max_num_batched_tokens=384,
    max_model_len=2048,
    max_queue=256,
    eos_ids=frozenset({0}),
    num_host_pages=200,
    page_bytes=PAGE_BYTES,
    priority_aging=20.0,
)
_RATE_S, _PHASES_S = 5.0, 1.0  # that rates and step times are averages of
_TEXT = 200  # tokens of each choice that are kept


class Simulation:
    """Time is in seconds since the start; it goes on with :meth:`step` alone."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.now = 0.0
        self.scheduler = Scheduler(CONFIG, key=random.randbytes(16))
        self.names: dict[int, Who] = {}  # of what is open
        self.said: dict[int, dict[int, deque[int]]] = {}  # handle → choice → the last tokens
        self._load = Load(random)
        self._random = random
        self._refs = 0
        self._drawn: deque[tuple[float, int]] = deque()
        self._phases: deque[tuple[float, dict[str, float]]] = deque()

    def step(self) -> StepEvents:
        """Let requests come, make a step if there is work, and tell what happened."""
        self.now += STEP_S
        for id, request in self._load.arrivals(self.now, len(self.names)):
            self.names[request.handle] = Who(id, len(request.prompt), request.params.n)
            self.scheduler.submit(request, self.now)
        plan = self.scheduler.plan(self.now)
        if plan is not None:
            phases = _phases(plan)
            self.scheduler.commit(plan, self._execute(plan), self.now, phases)
            self._phases.append((self.now, phases))
        return self.take_events()

    def take_events(self) -> StepEvents:
        """What has happened since the last call; the tokens are noted."""
        events = self.scheduler.take_events()
        for token in events.tokens:
            said = self.said.setdefault(token.handle, {})
            said.setdefault(token.choice, deque(maxlen=_TEXT)).append(token.token)
        if events.tokens:
            self._drawn.append((self.now, len(events.tokens)))
        return events

    def forget(self, handle: int) -> None:
        """A request has ended, and all was told of it."""
        self.names.pop(handle, None)
        self.said.pop(handle, None)

    def explain(self, handle: int) -> tuple[Explained, StepEvents]:
        """Why a request is where it is; and what else had not been told."""
        self._refs += 1
        self.scheduler.explain(handle, self._refs, self.now)
        events = self.take_events()
        (explained,) = events.explained
        return explained, events

    def changes(self) -> Changes:
        """What has changed since the last call; everything after ``scheduler.watch``."""
        changes = self.scheduler.look()
        assert changes is not None, "nobody watches"
        return changes

    def counters(self) -> Counters:
        """The counters of a state frame."""
        stats = self.scheduler.stats()
        pages, host = stats.pages, stats.host_pages
        return Counters(
            num_requests_running=stats.running,
            num_requests_waiting=stats.waiting,
            num_requests_swapped=stats.swapped,
            gpu_cache_usage=round((pages.owned + pages.shared) / pages.total, 4),
            host_cache_usage=round((host.swapped + host.cached) / host.total, 4),
            prefix_hit_rate=round(stats.prefix_hits / max(stats.prefix_queries, 1), 4),
            tokens_per_second=self._per_second(),
            preemptions_total=stats.preemptions_swap + stats.preemptions_recompute,
            step_ms=self._step_ms(),
        )

    def _execute(self, plan: StepPlan) -> StepResult:
        slots = [slot for chunk in plan.chunks for slot in chunk.samples]
        drawn = tuple(Sampled(slot, self._random.randrange(1, 4096)) for slot in slots)
        return StepResult(drawn, copied=len(plan.swap_out) + len(plan.swap_in))

    def _per_second(self) -> float:
        while self._drawn and self._drawn[0][0] < self.now - _RATE_S:
            self._drawn.popleft()
        span = min(max(self.now, 1.0), _RATE_S)
        return round(sum(count for _, count in self._drawn) / span, 1)

    def _step_ms(self) -> dict[str, float]:
        while self._phases and self._phases[0][0] < self.now - _PHASES_S:
            self._phases.popleft()
        sums: dict[str, float] = {}
        for _, phases in self._phases:
            for name, seconds in phases.items():
                sums[name] = sums.get(name, 0.0) + seconds
        return {name: round(1e3 * sum / len(self._phases), 3) for name, sum in sums.items()}


def _phases(plan: StepPlan) -> dict[str, float]:
    """The seconds that a step takes on the device that is simulated."""
    copied = len(plan.swap_out) + len(plan.swap_in)
    phases = {
        "plan": 0.0004,
        "build": 0.0003 + 2e-5 * len(plan.grow),
        "execute": 0.012 + 7e-5 * plan.num_tokens,
        "sample": 0.0008 + 4e-5 * len(plan.chunks),
        "commit": 0.0003,
    }
    return phases | ({"swap": copied * PAGE_BYTES / 2.5e9} if copied else {})
