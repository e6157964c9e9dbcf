"""Texts of many tokens: decoded in pieces, read in small parts, and told when the daemon ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from tokenizers import Tokenizer
from uvicorn.server import ServerState

from pagedd.server.http.protocol import READ_BYTES, GuardedProtocol
from pagedd.text.info import TOKENIZER_FILE
from pagedd.text.tokenizer import MOST_AT_ONCE, TextModel
from tests.http.edges import HTTP, Served, dumps, post
from tests.server.harness import Daemon, until

Start = Callable[..., Daemon]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("skip_special", [False, True])
def test_many_ids_are_decoded_as_by_the_tokenizer(text_dir: Path, skip_special: bool) -> None:
    """Broken characters and special tokens included."""
    tokenizer = Tokenizer.from_file(str(text_dir / TOKENIZER_FILE))
    ids = [at * 7919 % tokenizer.get_vocab_size() for at in range(MOST_AT_ONCE + 1)]
    found = TextModel.load(text_dir).decode(ids, skip_special=skip_special)
    assert found == tokenizer.decode(ids, skip_special_tokens=skip_special)
    assert "\N{REPLACEMENT CHARACTER}" in found


@pytest.mark.anyio
async def test_one_connection_is_not_read_much_of_at_a_time() -> None:
    """A body in chunks of a byte costs a thousand times its size."""
    made: list[GuardedProtocol] = []

    class Open(GuardedProtocol):
        max_connections = 1

    async def app(scope: Scope, receive: Receive, send: Send) -> None: ...

    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
    config.load()

    def protocol() -> GuardedProtocol:
        made.append(Open(config=config, server_state=ServerState(), app_state={}))
        return made[-1]

    loop = asyncio.get_running_loop()
    async with await loop.create_server(
        protocol, sock=socket.create_server(("127.0.0.1", 0))
    ) as at:
        _, writer = await asyncio.open_connection(*at.sockets[0].getsockname())
        while not made or made[0].transport is None:
            await asyncio.sleep(0)
        assert vars(made[0].transport)["max_size"] == READ_BYTES
        writer.close()


def preparing(served: Served) -> float:
    """How many requests wait for their tokens."""
    lines = HTTP.get(f"{served.http}/metrics").text.splitlines()
    name = "pagedd:num_requests_preparing"
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(name)]
    return float(value)


def test_b42_who_waits_for_tokens_is_told_that_the_daemon_ends(start: Start) -> None:
    """The daemon does not wait for what they ask to be tokenised; nothing is in the log."""
    daemon = start(engine={"step_s": 0.05}, drain_timeout=0.0)
    served = Served.of(daemon)
    body = dumps({"prompt": ["a b " * 60] * 1024, "max_tokens": 4, "ignore_eos": True})

    def ask() -> tuple[int, str]:
        got = post(served.http + "/v1/completions", body)
        return got.status_code, got.json()["error"]["code"]

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask) for _ in range(4)]
        until(lambda: preparing(served), "somebody who waits for tokens")
        daemon.signal(signal.SIGINT)
        assert [each.result() for each in answers] == [(503, "shutting_down")] * 4
    code, errors = daemon.end()
    assert code == 0
    assert "Traceback" not in errors


def test_a_prompt_that_turns_out_too_long_after_its_end_is_answered_once(start: Start) -> None:
    """It was cancelled, or its time was over; then the tokenizer finds more than there is room."""
    daemon = start(engine={"max_model_len": 1_000_000, "num_pages": 1_000_000})
    served = Served.of(daemon)
    long = "".join(chr(0x4E00 + at % 5000) for at in range(1_000_000))
    with daemon.client() as client:
        client.send(type="generate", id="late", prompt=long, timeout_s=0.001)
        client.send(type="generate", id="cancelled", prompt=long)
        client.send(type="cancel", id="cancelled")
        ends = {frame["id"]: frame for frame in (client.until("error", "done") for _ in range(2))}
        assert ends["late"]["code"] == "deadline_exceeded"
        choices = ends["cancelled"]["choices"]
        assert [choice["finish_reason"] for choice in choices] == ["cancelled"]
        until(lambda: preparing(served) == 0, "the end of the tokenising")
        client.send(type="status")
        assert client.until("error", "done", "status")["type"] == "status"
