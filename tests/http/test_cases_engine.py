"""An engine that dies or hangs: every client hears of it, and health tells the truth (case B35)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tests.engine.fake_engine import BLOCK, CRASH
from tests.http.edges import Answer, Served, ask, health
from tests.http.raw import completion, connect, exchange, response
from tests.server.harness import PATIENCE_S, Daemon, Gate, until

Start = Callable[..., Daemon]
RUNNING = 3


def begin(pool: ThreadPoolExecutor, edge: str, served: Served, max_tokens: int) -> Future[Answer]:
    """A request of a client that waits for its end, whatever that is."""
    return pool.submit(ask, edge, served, "abc", max_tokens=max_tokens)


def test_b35_a_killed_engine(start: Start, edge: str) -> None:
    """Streams that have text end with an error that may be retried. Whoever has none, as those who
    wait and those who want the whole answer at once, gets it of the next engine."""
    daemon = start(engine={"step_s": 0.02, "max_num_seqs": RUNNING})
    served = Served.of(daemon)
    assert health(served) == (200, {"status": "ready"})
    with ThreadPoolExecutor(8) as pool, daemon.client() as watch:
        engine = watch.status()["engine_pid"]
        runs = [begin(pool, edge, served, 120) for _ in range(RUNNING)]
        until(lambda: watch.status()["tokens"]["generated"] >= 3 * RUNNING, "tokens of all")
        waits = [pool.submit(ask, edge, served, "xyz", max_tokens=4) for _ in range(2)]
        until(lambda: watch.status()["requests"]["waiting"] == 2, "two to wait")
        os.kill(engine, signal.SIGKILL)
        code, said = until(lambda: (seen := health(served))[0] != 200 and seen, "health to tell")
        assert (code, said["status"] in ("failed", "loading")) == (503, True)
        refused = ask(edge, served, "abc", max_tokens=2)
        # unless the next engine is ready by now
        assert refused.status == 200 or (refused.status, refused.code) == (503, "engine_failed")
        for answer in [each.result(PATIENCE_S) for each in runs]:
            if edge.endswith("stream"):
                assert (answer.status, answer.code) == (503, "engine_failed"), answer
            else:
                assert answer.completion_tokens == 120
        assert [each.result(PATIENCE_S).text for each in waits] == ["xyzx", "xyzx"]
        until(lambda: health(served)[0] == 200, "recovery")
        assert watch.status()["engine_pid"] != engine
    assert ask(edge, served, "xyz", max_tokens=4).text == "xyzx"
    daemon.until_quiet()
    assert daemon.stop()[0] == 0


def test_b35_a_step_that_raises(start: Start, edge: str) -> None:
    """Nobody hangs; whoever asks for what no engine survives is told in the end."""
    daemon = start(engine={"step_s": 0.02})
    served = Served.of(daemon)
    with ThreadPoolExecutor(8) as pool:
        # not longer than that: those that may have killed an engine are tried one after another
        others = [begin(pool, edge, served, 40) for _ in range(RUNNING)]
        until(lambda: daemon.status()["tokens"]["generated"] >= RUNNING, "tokens")
        answer = ask(edge, served, "abc", seed=CRASH)
        assert (answer.status, answer.code) == (503, "engine_failed")
        assert "the spell says so" in answer.message
        assert {each.result(PATIENCE_S).status for each in others} <= {200, 503}
        until(lambda: health(served)[0] == 200, "recovery")
    assert ask(edge, served, "xyz", max_tokens=4).text == "xyzx"
    daemon.until_quiet()
    assert daemon.stop()[0] == 0


def test_b35_an_error_in_mid_stream_is_one_event_before_the_end(start: Start) -> None:
    """And the connection is as good as before."""
    daemon = start(engine={"step_s": 0.02})
    with connect(Served.of(daemon)) as sock:
        sock.sendall(completion(max_tokens=200, stream=True))
        until(lambda: daemon.status()["tokens"]["generated"] > 2, "tokens")
        os.kill(daemon.status()["engine_pid"], signal.SIGKILL)
        got = response(sock)
        *_, error, end = got.body.decode().strip().split("\n\n")
        assert got.status == 200
        assert error.startswith('data: {"error":{"message":"the engine failed')
        assert end == "data: [DONE]"
        until(lambda: daemon.status()["state"] == "ready", "another engine")
        sock.sendall(completion(max_tokens=2))
        assert response(sock).status == 200
    assert daemon.stop()[0] == 0


def test_b35_a_refusal_says_when_to_come_again(start: Start, gate: Gate) -> None:
    daemon = start(wait=False, engine={"load_gate": gate.path})
    daemon.until_it_listens()
    got = exchange(Served.of(daemon), completion())
    assert (got.status, got.error["type"]) == (503, "server_error")
    assert int(got.headers["retry-after"]) >= 1
    daemon.stop()


def test_b35_a_step_that_hangs(start: Start, gate: Gate, edge: str) -> None:
    daemon = start(engine={"block_gate": gate.path}, stall_s=0.3)
    served = Served.of(daemon)
    with ThreadPoolExecutor(2) as pool:
        hangs = pool.submit(ask, edge, served, "abc", seed=BLOCK, max_tokens=5)
        code, said = until(lambda: (seen := health(served))[0] != 200 and seen, "the stall")
        assert (code, said["status"]) == (503, "stalled")
        assert "0.3 s" in said["reason"]
        gate.open()
        assert hangs.result(PATIENCE_S).text == "abcab"
    until(lambda: health(served)[0] == 200, "recovery")
    assert daemon.stop()[0] == 0


def test_b35_while_it_loads(start: Start, gate: Gate, edge: str) -> None:
    daemon = start(wait=False, engine={"load_gate": gate.path})
    daemon.until_it_listens()
    served = Served.of(daemon)
    assert health(served) == (503, {"status": "loading"})
    answer = ask(edge, served, "abc")
    assert (answer.status, answer.code) == (503, "engine_failed")
    assert "loading" in answer.message
    gate.open()
    assert daemon.ready_line() == "ready\n"
    assert health(served)[0] == 200
    assert ask(edge, served, "abc", max_tokens=3).text == "abc"
    assert daemon.stop()[0] == 0


def test_b35_it_gives_up_with_a_code_that_says_so(start: Start) -> None:
    daemon = start(wait=False, engine={"broken": "out of luck"})
    daemon.until_it_listens()
    assert health(Served.of(daemon))[0] == 503
    assert "5 times in a row" in daemon.ready_line()
    assert daemon.end()[0] == 1
