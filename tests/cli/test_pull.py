"""``pagedd pull`` and the download that ``start`` does by itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from pagedd.cli.main import main
from pagedd.cli.progress import Lines, shown_progress
from pagedd.cli.start import ensure_model
from pagedd.config import load_config
from pagedd.errors import ModelError, ModelNotFound
from pagedd.models.catalog import DEFAULT_MODEL

NOWHERE = Path("/nonexistent/pagedd.toml")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, home: Path) -> list[str]:
    names: list[str] = []

    def fake(name: str, progress: Callable[[float, str], None]) -> Path:
        names.append(name)
        progress(1.0, "there")
        return home / name

    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pagedd.models.pull.pull", fake)
    return names


def test_pull_prints_where_the_model_is(
    fetched: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull"]) == 0
    assert fetched == [DEFAULT_MODEL]
    captured = capsys.readouterr()
    assert captured.out == f"{home / DEFAULT_MODEL}\n"
    assert captured.err == "pagedd: there (100%)\n"


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "owner/some-model"])
def test_start_fetches_what_can_be_fetched(fetched: list[str], name: str) -> None:
    ensure_model(load_config({"model": name}, {}, user_file=NOWHERE))
    assert fetched == [name]


@pytest.mark.parametrize("name", ["/no/such/folder", "no-short-name", "owner/file.gguf"])
def test_start_fetches_nothing_else(fetched: list[str], name: str) -> None:
    with pytest.raises((ModelNotFound, ModelError)):
        ensure_model(load_config({"model": name}, {}, user_file=NOWHERE))
    assert fetched == []


def test_plain_progress_is_a_line_for_each_quarter_and_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines()
    for step in range(101):
        lines(step / 100, "a file")
    lines(1.0, "done")
    assert capsys.readouterr().err.splitlines() == [
        *(f"pagedd: a file ({quarter}%)" for quarter in (0, 25, 50, 75, 100)),
        "pagedd: done (100%)",
    ]


def test_numbers_alone_make_no_new_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for number in range(1, 9):
        lines(number / 8, f"{number} of 8 requests")
    assert capsys.readouterr().err.splitlines() == [
        "pagedd: 1 of 8 requests (12%)",
        "pagedd: 2 of 8 requests (25%)",
        "pagedd: 4 of 8 requests (50%)",
        "pagedd: 6 of 8 requests (75%)",
        "pagedd: 8 of 8 requests (100%)",
    ]


def test_a_bar_on_a_terminal_shows_names_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with shown_progress() as progress:
        progress(0.5, "[red]\x1b]0;x\x07file")
    assert "[red]]0;xfile" in screen.getvalue()
    assert "\x07" not in screen.getvalue()
