"""Ending the daemon: draining, a second signal, while loading; reload and dump."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from pagedd.server.listener import OPEN_TIMEOUT_S
from tests.server.harness import Client, Daemon, Gate, alive, until

Start = Callable[..., Daemon]


def stream(client: Client, id: str, **params: object) -> None:
    """Start a request and wait for its first token."""
    client.send(type="generate", id=id, prompt="abc", params={"max_tokens": 200, **params})
    client.until("delta", id=id)


def closing_code(client: Client) -> int:
    """Read to the end of the connection."""
    with pytest.raises(ConnectionClosed) as closed:
        until(lambda: not client.receive(), "the end of the connection")
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def gone(daemon: Daemon, engine: int) -> None:
    """No file, no port, no child is left."""
    assert list(Path(daemon.settings.socket).parent.iterdir()) == []
    assert not alive(engine)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_finish_and_new_ones_are_refused(start: Start, number: int) -> None:
    daemon = start(engine={"step_s": 0.005})
    with daemon.client() as client, daemon.client() as idle:
        engine = client.status()["engine_pid"]
        stream(client, "a")
        daemon.signal(number)
        until(lambda: idle.status()["state"] == "draining", "the drain")
        refused = idle.generate("b", prompt="abc")[-1]
        assert (refused["code"], refused["retryable"]) == ("shutting_down", True)
        assert client.rest("a")[-1]["choices"][0]["finish_reason"] == "length"
        assert closing_code(client) == 1001
        assert closing_code(idle) == 1001
    code, errors = daemon.end()
    assert (code, "Traceback" in errors) == (0, False)
    gone(daemon, engine)


def test_what_does_not_finish_in_time_ends_with_an_error(start: Start) -> None:
    daemon = start(engine={"step_s": 0.05}, drain_timeout=0.3)
    with daemon.client() as client, daemon.client() as other:
        engine = client.status()["engine_pid"]
        for at in range(3):
            stream(client, f"s{at}")
        stream(other, "x")
        daemon.signal(signal.SIGTERM)
        terminal: list[tuple[str, str]] = []
        while len(terminal) < 3:
            frame = client.until("done", "error")
            terminal.append((frame["id"], frame["code"]))
        assert sorted(terminal) == [(f"s{at}", "shutting_down") for at in range(3)]
        assert other.rest("x")[-1]["code"] == "shutting_down"
        assert closing_code(client) == 1001
    assert daemon.end()[0] == 0
    gone(daemon, engine)


def test_a_second_interrupt_ends_at_once(start: Start) -> None:
    daemon = start(engine={"step_s": 0.05}, drain_timeout=1000.0)
    with daemon.client() as client:
        engine = client.status()["engine_pid"]
        stream(client, "a")
        daemon.signal(signal.SIGINT)
        until(lambda: client.status()["state"] == "draining", "the drain")
        daemon.signal(signal.SIGINT)
        assert client.rest("a")[-1]["code"] == "shutting_down"
        assert closing_code(client) == 1001
        code, errors = daemon.end()
    assert (code, "Traceback" in errors) == (130, False)
    gone(daemon, engine)


def test_a_client_that_does_not_read_does_not_hold_it_up(start: Start) -> None:
    daemon = start(engine={"step_s": 0.0005, "max_model_len": 4096, "num_pages": 1024})
    with daemon.client(max_queue=1) as silent:
        silent.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for at in range(4):
            params = {"max_tokens": 4000, "logprobs": 10}
            silent.send(type="generate", id=f"s{at}", prompt="abc", params=params)
        silent.until("delta")
        engine = daemon.status()["engine_pid"]
        code, _ = daemon.stop()
    assert code == 0
    gone(daemon, engine)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_act_while_the_model_loads(start: Start, gate: Gate, number: int) -> None:
    daemon = start(wait=False, engine={"load_gate": gate.path})
    daemon.until_it_listens()
    engine = until(lambda: daemon.status()["engine_pid"], "an engine")
    daemon.signal(number)
    assert daemon.ready_line() == ""
    assert daemon.end()[0] == 0
    gone(daemon, engine)


def test_who_connects_and_says_nothing_does_not_hold_it_up(start: Start) -> None:
    """The opening handshake has a time limit of its own, which is longer than anyone waits."""
    daemon = start()
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
        for sock in (silent, half):
            sock.connect(daemon.settings.socket)
        half.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        daemon.status()  # both have been accepted: connections are, in their order
        daemon.signal(signal.SIGTERM)
        code, errors = daemon.process.wait(OPEN_TIMEOUT_S / 2), daemon.end()[1]
    assert (code, "Traceback" in errors) == (0, False)


def test_the_engine_is_out_of_reach_of_the_terminals_signals(start: Start) -> None:
    """A Ctrl-C that came while its interpreter starts would end it with a traceback."""
    daemon = start()
    engine = daemon.status()["engine_pid"]
    assert os.getpgid(engine) == os.getsid(engine) == engine


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_heard_to_the_end(start: Start, gate: Gate, number: int) -> None:
    """An engine that loads is given time; the default action would leave it and the files."""
    daemon = start(wait=False, engine={"load_gate": gate.path})
    daemon.until_it_listens()
    engine = until(lambda: daemon.status()["engine_pid"], "an engine")
    daemon.signal(number)
    until(lambda: daemon.signal(number) or not alive(engine), "the engine's end")
    code, errors = daemon.end()
    assert (code, "Traceback" in errors) == (130, False)
    gone(daemon, engine)


def test_ctrl_c_in_the_terminal_drains_although_the_engine_gets_it_too(start: Start) -> None:
    daemon = start(engine={"step_s": 0.005})
    with daemon.client() as client:
        engine = client.status()["engine_pid"]
        stream(client, "a")
        os.kill(engine, signal.SIGINT)
        daemon.signal(signal.SIGINT)
        assert client.rest("a")[-1]["type"] == "done"
    assert daemon.end()[0] == 0


def test_reload_and_dump_are_harmless(start: Start) -> None:
    daemon = start()
    daemon.signal(signal.SIGHUP)
    daemon.signal(signal.SIGUSR1)
    with daemon.client() as client:
        assert client.generate("a", prompt="abc", params={"max_tokens": 2})[-1]["type"] == "done"
    code, errors = daemon.stop()
    assert code == 0
    assert "there are no settings to read again" in errors
    assert '"state":"ready"' in errors
    assert "Current thread 0x" in errors
    assert "in _watch_signals" in errors


def test_the_log_goes_to_the_file_without_control_characters(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "daemon.log"
    daemon = start(log_file=str(log), engine={"note": "\x1b[2Jevil\x07"}, listen=None)
    assert daemon.stop() == (0, "")
    written = log.read_text()
    assert "\\x1b[2Jevil\\x07" in written
    assert "\x1b" not in written


@pytest.mark.parametrize(
    ("mode", "pages", "warned"), [("swap", 0, 1), ("swap", 4, 0), ("auto", 0, 0)]
)
def test_swapping_without_swap_space_is_warned_of_in_one_line(
    start: Start, mode: str, pages: int, warned: int
) -> None:
    daemon = start(engine={"num_host_pages": pages}, config={"preemption_mode": mode})
    _, errors = daemon.stop()
    assert sum("without swap space" in line for line in errors.splitlines()) == warned


def test_the_service_manager_is_told(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "n")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(10)
        manager.bind(address)
        daemon = start()
        loading = manager.recv(4096).decode()
        assert loading == "STATUS=loading: weights 50%\nEXTEND_TIMEOUT_USEC=60000000"
        ready = manager.recv(4096).decode()
        assert ready.startswith("READY=1\nSTATUS=ready: fake on unix:")
        assert daemon.stop()[0] == 0
        assert manager.recv(4096).decode() == "STOPPING=1"


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2"])
def test_what_is_sent_to_all_processes_of_the_name_ends_no_engine(start: Start, name: str) -> None:
    """As ``pkill -USR1 -f pagedd`` does: the daemon has a use for it, the engine has none."""
    daemon = start(engine={"step_s": 0.005})
    with daemon.client() as client:
        engine = client.status()["engine_pid"]
        stream(client, "a", max_tokens=20)
        os.kill(engine, getattr(signal, name))
        assert client.rest("a")[-1]["type"] == "done"
        assert client.generate("b", prompt="abc", params={"max_tokens": 3})[-1]["type"] == "done"
        assert client.status()["engine_pid"] == engine
