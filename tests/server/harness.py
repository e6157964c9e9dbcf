"""What the black-box tests share: a daemon process, a client that speaks frames, waiting."""

from __future__ import annotations

import errno
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from websockets.sync.client import ClientConnection, connect, unix_connect

from pagedd.engine.messages import EngineConfig
from pagedd.protocol import SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK
from pagedd.server.settings import DaemonSettings
from pagedd.text.info import INFO_FILE, Spelling, TextInfo
from tests.engine.fake_engine import Options
from tests.server.fake_daemon import Start
from tests.server.hatched import ROOT, Hatched, nursery
from tests.tiny.tokenizer import BOS, CHAT_TEMPLATE, EOS, SPECIAL, VOCAB_SIZE, save_tokenizer

PATIENCE_S = 20.0  # what a wait may take on a busy machine before the test fails
Frame = dict[str, Any]


def make_text_dir(folder: Path) -> Path:
    """The tiny tokenizer in the form that the daemon loads."""
    folder.mkdir(parents=True)
    save_tokenizer(folder)
    info = TextInfo(
        name="tiny",
        vocab_size=VOCAB_SIZE,
        add_bos=False,
        chat_bos=True,
        spelling=Spelling(byte_level=True),
        chat_template="{% if messages[0]['role'] == 'tool' %}{{ raise_exception('no tools') }}"
        "{% endif %}" + CHAT_TEMPLATE,
        bos_id=BOS,
        bos_text="<|bos|>",
        eos_id=EOS,
        eos_text="<|eos|>",
        eos_ids=(EOS,),
        special_ids=tuple(SPECIAL.values()),
        named={"bos_token": "<|bos|>", "eos_token": "<|eos|>"},
    )
    (folder / INFO_FILE).write_bytes(msgspec.json.encode(info))
    return folder


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition holds; its value. For states that cannot be awaited."""
    deadline = time.monotonic() + PATIENCE_S
    poll = select.poll()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        poll.poll(10)
    return value


class Gate:
    """Holds up an engine until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)

    def open(self) -> None:
        """Let through who waits at it, or comes to it soon."""

        def writer() -> int | None:
            try:
                return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return None  # nobody reads

        os.close(until(writer, "somebody at the gate"))


def alive(pid: int) -> bool:
    """Does the process run? A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it was gone, or went while it was read
        return False


class Client:
    """A connection that sends and receives plain objects."""

    def __init__(self, socket: ClientConnection, *, json_frames: bool) -> None:
        self.socket = socket
        self.json_frames = json_frames
        self.hello = self.receive()

    def send(self, **frame: Any) -> None:
        data = json.dumps(frame) if self.json_frames else msgspec.msgpack.encode(frame)
        self.socket.send(data)

    def send_raw(self, data: str | bytes) -> None:
        self.socket.send(data)

    def receive(self) -> Frame:
        data = self.socket.recv(timeout=PATIENCE_S)
        if isinstance(data, str):
            assert self.json_frames
            return json.loads(data)
        assert not self.json_frames
        return msgspec.msgpack.decode(data)

    def until(self, *types: str, id: str | None = None) -> Frame:
        """The next frame of one of these types (about this request); others are dropped."""
        while True:
            frame = self.receive()
            if frame["type"] in types and id in (None, frame.get("id")):
                return frame

    def generate(self, id: str, **fields: Any) -> list[Frame]:
        """All frames of one request, to its end."""
        self.send(type="generate", id=id, **fields)
        return self.rest(id)

    def rest(self, id: str) -> list[Frame]:
        frames = []
        while not frames or frames[-1]["type"] not in ("done", "error"):
            frame = self.receive()
            if frame.get("id") == id or frame.get("ref") == id:
                frames.append(frame)
        return frames

    def status(self) -> Frame:
        self.send(type="status")
        return self.until("status")

    def drop(self) -> None:
        """As a killed process leaves it: no goodbye."""
        self.socket.socket.shutdown(2)


class Daemon:
    """A daemon process with a fake engine: ``engine`` its Options, ``config`` its EngineConfig.

    ``backoff_s``: so long it waits before another engine, less than daemons do as a rule.
    ``preloaded``: it is forked off a process that has its modules, or else a Python of its own.
    """

    process: Hatched | subprocess.Popen[str]

    def __init__(
        self,
        folder: Path,
        text_dir: Path,
        *,
        wait: bool = True,
        engine: Frame | None = None,
        config: Frame | None = None,
        stall_s: float = 30.0,
        backoff_s: float = 0.05,
        read_again: Path | None = None,
        preloaded: bool = sys.platform == "linux",
        **settings: Any,
    ) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        reader, writer = os.pipe()
        options = Options(text_dir=str(text_dir), **(engine or {}))
        self.settings = DaemonSettings(
            **{
                "socket": str(folder / "d.sock"),
                "engine": EngineConfig(
                    **{"model": "some-model", "max_queue": 64, **(config or {})}
                ),
                "listen": "127.0.0.1:0",
                "http": None,
                "ready_fd": writer,
                **settings,
            }
        )
        again = None if read_again is None else str(read_again)
        start = Start(
            self.settings, msgspec.json.encode(options).decode(), stall_s, backoff_s, again
        )
        argument = msgspec.json.encode(start).decode()
        if preloaded:
            self.process = nursery().hatch(argument, pass_fds=(writer,))
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.fake_daemon", argument],
                cwd=ROOT,
                stderr=subprocess.PIPE,
                pass_fds=(writer,),
                text=True,
            )
        os.close(writer)
        self._ready = os.fdopen(reader)
        if wait:
            assert self.ready_line() == "ready\n"

    def ready_line(self) -> str:
        """What the daemon says when it serves, or cannot; empty if it died before."""
        return self._ready.readline()

    @contextmanager
    def client(self, *, json_frames: bool = True, **options: Any) -> Iterator[Client]:
        subprotocol = SUBPROTOCOL_JSON if json_frames else SUBPROTOCOL_MSGPACK
        with unix_connect(
            self.settings.socket,
            uri="ws://localhost/",
            subprotocols=[subprotocol],
            compression=None,
            max_size=None,
            **options,
        ) as socket:
            yield Client(socket, json_frames=json_frames)

    def tcp(self, path: str = "/", **options: Any) -> ClientConnection:
        with self.client() as client:
            url = client.status()["endpoints"][1]
        return connect(url + path, compression=None, proxy=None, **options)

    def status(self) -> Frame:
        with self.client() as client:
            return client.status()

    def until_it_listens(self) -> None:
        """Wait until it takes connections, which it does while it loads."""

        def listens() -> bool:
            with socket.socket(socket.AF_UNIX) as sock:
                return sock.connect_ex(self.settings.socket) == 0

        until(listens, "the socket")

    def until_state(self, state: str) -> Frame:
        """Wait for a state of the daemon; its status."""
        with self.client() as client:
            return until(
                lambda: (s := client.status())["state"] == state and s, f"the state {state}"
            )

    def until_quiet(self) -> Frame:
        """Wait until nothing runs and no page is held on the device or the host; the status."""

        def quiet(status: Frame) -> bool:
            return (
                status["requests"]["running"] == status["requests"]["waiting"] == 0
                and status["requests"]["swapped"] == 0
                and all(
                    pages["free"] + pages["cached"] == pages["total"]
                    for pages in (status["pages"], status["host_pages"])
                )
            )

        with self.client() as client:
            return until(lambda: (s := client.status()) and quiet(s) and s, "quiescence")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for the end; the exit code and what was written to standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        self._ready.close()
        return self.process.returncode, errors

    def stop(self) -> tuple[int, str]:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.end()


fresh = itertools.count()


def new_id() -> str:
    """An id that no other test uses."""
    return f"r{next(fresh)}"
