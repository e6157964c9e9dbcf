"""What the status says of the caches and of swapping, over the lives of several engines."""

from __future__ import annotations

from pagedd.core.events import HostPageCounts, PageCounts, StepEvents
from pagedd.engine.messages import Step
from pagedd.protocol import HostPageCounts as ShownHostPages
from pagedd.protocol import PreemptionCounts
from pagedd.server.status import Facts, StatusBoard
from tests.engine.parts import NO_STATS, READY

FACTS = Facts(state="ready", reason=None, engine_pid=1, connections=0, endpoints=())


def test_swapping_shows_and_its_totals_outlive_an_engine() -> None:
    board = StatusBoard("0", "boot", "m", clock=lambda: 1.0)
    board.engine_ready(READY)
    assert board.status(FACTS).host_pages == ShownHostPages(6, 6, 0, 0)
    stats = NO_STATS._replace(
        swapped=2,
        host_pages=HostPageCounts(6, 2, 4, 0),
        preemptions_swap=3,
        preemptions_recompute=1,
        swapped_bytes=500,
    )
    board.step(Step(StepEvents(), stats, {}))
    status = board.status(FACTS)
    assert status.requests.swapped == 2
    assert status.host_pages == ShownHostPages(6, 2, 4, 0)
    assert status.preemptions == PreemptionCounts(3, 1)
    assert status.swapped_bytes == 500
    board.engine_lost(0)
    board.engine_ready(READY)
    board.step(Step(StepEvents(), NO_STATS._replace(preemptions_swap=1, swapped_bytes=20), {}))
    status = board.status(FACTS)
    assert (status.requests.swapped, status.preemptions) == (0, PreemptionCounts(4, 1))
    assert status.swapped_bytes == 520


def test_the_names_of_other_servers_say_the_same() -> None:
    board = StatusBoard("0", "boot", "m", clock=lambda: 1.0)
    idle = board.status(FACTS)
    assert (idle.gpu_cache_usage, idle.host_cache_usage) == (0.0, 0.0)
    board.engine_ready(READY)
    stats = NO_STATS._replace(
        running=3,
        waiting=2,
        swapped=1,
        pages=PageCounts(8, 1, 2, 4, 1),
        host_pages=HostPageCounts(6, 1, 3, 2),
        preemptions_swap=3,
        preemptions_recompute=4,
        steps=70,
        unused_slots=9,
        spilled_pages=5,
        host_hits=16,
    )
    for again in (1, 2):
        board.step(Step(StepEvents(), stats, {}))
        status = board.status(FACTS)
        requests = (
            status.num_requests_running,
            status.num_requests_waiting,
            status.num_requests_swapped,
        )
        assert requests == (3, 2, 1)
        assert (status.gpu_cache_usage, status.host_cache_usage) == (0.625, 0.8333)
        assert status.unused_slots == 9
        assert (status.num_preemptions, status.num_steps) == (7 * again, 70 * again)
        assert (status.spilled_pages, status.host_hits) == (5 * again, 16 * again)
        board.engine_lost(0)
        board.engine_ready(READY)
