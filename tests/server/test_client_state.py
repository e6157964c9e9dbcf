"""The state feed, read with the asynchronous client."""

from __future__ import annotations

import anyio
import pytest

from pagedd.client import Client
from pagedd.errors import BadRequest, RequestNotFound
from pagedd.protocol import Generate, Params
from pagedd_tui.model import Model
from tests.server.harness import Daemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def url(daemon: Daemon) -> str:
    return f"unix:{daemon.settings.socket}"


async def test_frames_fold_and_can_be_asked_for_again(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client:
        for round in range(2):
            model, frames = Model(), client.state(30)
            async for frame in frames:
                if not model.follows(frame):
                    assert model.frame == 0, "only late frames come before the keyframe"
                    continue
                model.take(frame)
                break
            assert len(model.pages) == client.hello.num_pages
            with pytest.raises(BadRequest, match="is being read already"):
                await anext(client.state())
            asked = Generate(id=f"r{round}", prompt="abc", params=Params(max_tokens=3))
            _ = [frame async for frame in client.generate(asked)]
            while model.counters.tokens_per_second == 0.0 or model.rows:
                model.take(await anext(frames))
            await frames.aclose()


@pytest.mark.parametrize("hz", [0.0, 0.01, 31.0, float("nan")])
async def test_rates_that_there_are_not(daemon: Daemon, hz: float) -> None:
    async with Client.connect(url(daemon)) as client:
        with pytest.raises(BadRequest, match="hz"):
            await anext(client.state(hz))


async def test_stop_says_whether_there_was_something_to_stop(daemon: Daemon) -> None:
    async with Client.connect(url(daemon)) as client, Client.connect(url(daemon)) as other:
        frames = client.state(30)
        asked = Generate(id="long", prompt="abc", params=Params(max_tokens=10**6, ignore_eos=True))
        reasons: list[str] = []

        async def generate() -> None:
            async for frame in other.generate(asked):
                reasons.extend(each.finish_reason for each in getattr(frame, "choices", []))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(generate)
            while not (rows := (await anext(frames)).sequences):
                pass
            await client.stop(f"#{rows[0].handle}")
        assert reasons == ["cancelled"]
        with pytest.raises(RequestNotFound):
            await client.stop(f"#{rows[0].handle}")
        await frames.aclose()
