"""SIGHUP: what is read again, what needs a restart, and what is told of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import InvalidStatus

from pagedd.server.keys import NEEDED, UNKNOWN, WRONG_SCHEME, ApiKeys, refusal
from tests.server.harness import Daemon, until

Start = Callable[..., Daemon]


class Settings:
    """The file that SIGHUP reads, and what the daemon says of it."""

    def __init__(self, folder: Path, start: Start, **settings: Any) -> None:
        self.path = folder / "settings"
        self.log = folder / "d.log"
        self.daemon = start(read_again=self.path, log_file=str(self.log), **settings)

    def reload(self, text: str | None = None, **changes: Any) -> str:
        """The lines that it logs about it."""
        new = msgspec.structs.replace(self.daemon.settings, **changes)
        self.path.write_text(msgspec.json.encode(new).decode() if text is None else text)
        before = self.log.read_text() if self.log.exists() else ""
        self.daemon.signal(signal.SIGHUP)

        def said() -> str:
            now = self.log.read_text() if self.log.exists() else ""
            return now.removeprefix(before)

        until(lambda: "SIGHUP: " in said(), "what it says")
        self.daemon.status()  # one turn of its loop: all has been said
        return said()


def admitted(daemon: Daemon, key: str) -> bool:
    try:
        with daemon.tcp(additional_headers={"Authorization": f"Bearer {key}"}):
            return True
    except InvalidStatus as refused:
        return refused.response.status_code != 401


def test_keys_are_other_ones_from_the_next_connection_on(start: Start, tmp_path: Path) -> None:
    settings = Settings(tmp_path, start, api_keys=("one", "two"))
    daemon = settings.daemon
    with daemon.client() as client:
        assert [admitted(daemon, key) for key in ("one", "two", "three", "")] == [
            True,
            True,
            False,
            False,
        ]
        said = settings.reload(api_keys=("two", "three"))
        assert "SIGHUP: changed --api-key" in said
        assert "one" not in said.partition("SIGHUP")[2]
        assert [admitted(daemon, key) for key in ("one", "two", "three")] == [False, True, True]
        assert client.generate("a", prompt="abc", params={"max_tokens": 1})[-1]["type"] == "done"
        assert "changed --api-key" in settings.reload(api_keys=())
        assert admitted(daemon, "whatever")
    assert daemon.stop()[0] == 0


def test_levels_limits_and_what_needs_a_restart_are_named(start: Start, tmp_path: Path) -> None:
    settings = Settings(tmp_path, start)
    assert "no setting has changed" in settings.reload()
    engine = msgspec.structs.replace(settings.daemon.settings.engine, max_num_seqs=3)
    said = settings.reload(
        log_level="debug", request_timeout=0.2, outbox_bytes=5000, engine=engine, log_keep=7
    )
    assert "changed --request-timeout, --log-level, --log-keep" in said
    assert "only a restart changes --outbox-bytes, --max-num-seqs" in said
    with settings.daemon.client() as client:
        client.send(type="generate", id="a", prompt="abc", params={"seed": -1004, "max_tokens": 99})
        assert client.until("error", "done")["code"] == "deadline_exceeded"
    settings.daemon.stop()


def test_settings_that_are_wrong_change_nothing(start: Start, tmp_path: Path) -> None:
    settings = Settings(tmp_path, start, api_keys=("one",))
    said = settings.reload("--api-key: keys.txt cannot be read: No such file or directory")
    assert "all settings stay as they are: --api-key: keys.txt cannot be read" in said
    assert admitted(settings.daemon, "one")
    assert not admitted(settings.daemon, "two")
    assert settings.daemon.stop() == (0, "")


def test_the_log_goes_on_in_a_new_file(start: Start, tmp_path: Path) -> None:
    settings = Settings(tmp_path, start)
    settings.log.rename(tmp_path / "put-aside")
    said = settings.reload()
    assert "no setting has changed" in said
    assert "SIGHUP" not in (tmp_path / "put-aside").read_text()
    settings.daemon.stop()


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (["Bearer a"], None),
        (["bearer b"], None),
        (["Bearer  b "], None),
        (["Bearer \u00c3\u00a9"], None),  # the bytes of "\u00e9", as HTTP's readers give them
        (["Bearer c"], UNKNOWN),
        (["Bearer é"], UNKNOWN),
        (["Bearer \udcff"], UNKNOWN),
        (["Basic a"], WRONG_SCHEME),
        (["a"], WRONG_SCHEME),
        (["Bearer "], WRONG_SCHEME),
        (["Bearer a", "Bearer a"], WRONG_SCHEME),
        ([], NEEDED),
        ([""], NEEDED),
    ],
)
def test_a_key_is_one_of_them_in_one_header(headers: list[str], said: str | None) -> None:
    """And who has a wrong one is not told to bring one."""
    keys = ApiKeys(["a", "b", "é"])
    assert refusal(headers, keys.current) == said
    keys.replace([])
    assert refusal(headers, keys.current) is None
