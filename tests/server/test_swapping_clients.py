"""Clients that are killed in the middle of swaps leave both pools whole."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.server.harness import Daemon, Frame

Start = Callable[..., Daemon]
ROUNDS = 50


def whole(status: Frame) -> None:
    """Nothing is named any more, on either side, and nothing is lost."""
    for pages in (status["pages"], status["host_pages"]):
        assert pages["free"] + pages["cached"] == pages["total"] > 0
    assert status["pages"]["owned"] == status["pages"]["shared"] == 0
    assert status["host_pages"]["swapped"] == status["requests"]["swapped"] == 0


@pytest.mark.parametrize("mode", ["swap", "auto"])
def test_killed_in_the_middle_of_swaps(start: Start, mode: str) -> None:
    """Pool of 24 pages, 8 requests that would need 80; the connections break after so many frames
    of preemptions, some at a preemption, some while its pages are away, some on the way back.
    """
    daemon = start(
        engine={"num_pages": 24, "num_host_pages": 20, "step_s": 0.0005},
        config={"preemption_mode": mode},
    )
    dice = random.Random(7)
    for _ in range(ROUNDS):
        with daemon.client() as one, daemon.client(json_frames=False) as two:
            for at in range(8):
                (one, two)[at % 2].send(
                    type="generate",
                    id=f"r{at}",
                    prompt=f"number {at} ",
                    params={"max_tokens": 70, "n": 2 if at == 5 else 1},
                    priority=at % 3,
                )
            for _ in range(dice.randint(1, 4)):
                one.until("preempted", "resumed")
            one.drop()
            if dice.random() < 0.5:
                two.drop()
            else:
                ended = {two.until("done", "error")["type"] for _ in range(4)}
                assert ended == {"done"}
        whole(daemon.until_quiet())
    status = daemon.status()
    assert status["preemptions"]["swap"] >= ROUNDS
    assert status["requests"]["cancelled_total"] >= 4 * ROUNDS // 2
    with daemon.client() as client:
        frames = client.generate("after", prompt="xyz", params={"max_tokens": 6})
        assert "".join(f["text"] for f in frames if f["type"] == "delta") == "xyzxyz"
    assert daemon.stop()[0] == 0


@pytest.mark.parametrize(
    ("host_pages", "said"),
    [(0, "there is no swap space"), (5, "too little host memory: "), (200, "swap as configured")],
)
def test_the_frame_says_why_in_this_way(start: Start, host_pages: int, said: str) -> None:
    daemon = start(
        engine={"num_pages": 24, "num_host_pages": host_pages},
        config={"preemption_mode": "swap", "prefix_cache": False},
    )
    with daemon.client() as client:
        ids = [f"r{at}" for at in range(5)]
        for id in ids:
            client.send(type="generate", id=id, prompt="abc", params={"max_tokens": 90})
        told: list[Frame] = []
        ended: set[str] = set()
        while ended != set(ids):
            frame = client.receive()
            if frame["type"] in ("preempted", "resumed"):
                told.append(frame)
            elif frame["type"] == "done":
                ended.add(frame["id"])
        gave_way = [frame for frame in told if frame["type"] == "preempted"]
        assert [frame for frame in gave_way if said in frame["reason"]]
        for frame in gave_way:
            swapped = frame["mode"] == "swap"
            went = "went to host memory" if swapped else "to be computed again"
            assert f"its {frame['pages']} page" in frame["reason"]
            assert went in frame["reason"]
            assert swapped == ("as configured" in frame["reason"])
        assert {frame["mode"] for frame in told if frame["type"] == "resumed"} == {
            frame["mode"] for frame in gave_way
        }
        for frame in told:
            assert frame["reason"].startswith(f"{frame['id']} (#")
    assert daemon.until_quiet()["host_pages"]["total"] == host_pages
    daemon.stop()
