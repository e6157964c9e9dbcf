"""Other keys: those that there are, each for one thing."""

from __future__ import annotations

import pytest

from pagedd_tui.keys import KEYS, mapped, problem_of, shown_for


def test_the_table_itself_has_each_key_once() -> None:
    assert problem_of({}) == ""


@pytest.mark.parametrize(
    "key", ["f", "F", "f,g", "é", "f12", "ctrl+f", "alt+left", "ctrl+shift+f", "backspace", "ö"]
)
def test_a_key_that_is_free_is_taken(key: str) -> None:
    assert problem_of({"freeze": key}) == ""


@pytest.mark.parametrize("key", ["nonsense", "hyper+f", "f13f", "ctrl+", "f,", "ctrl+nonsense"])
def test_what_is_no_key_is_refused(key: str) -> None:
    assert problem_of({"freeze": key}).startswith("there is no key")


@pytest.mark.parametrize(
    ("key", "owner"),
    [("x", "cancel"), ("/", "filter"), ("slash", "filter"), ("equals_sign", "zoom_in")],
)
def test_a_key_of_something_else_is_refused(key: str, owner: str) -> None:
    assert owner in problem_of({"freeze": key})


@pytest.mark.parametrize("key", ["h", "up", "pagedown", "ctrl+c", "ctrl+p", "tab", "enter"])
def test_a_key_that_moves_leaves_or_opens_is_refused(key: str) -> None:
    assert "would be the key of" in problem_of({"freeze": key})


def test_two_may_change_places() -> None:
    assert problem_of({"freeze": "slash", "filter": "space"}) == ""


def test_what_is_shown_for_a_key_follows_the_map() -> None:
    assert shown_for("freeze", KEYS) == "space"
    assert shown_for("freeze", mapped({"freeze": "f"})) == "f"
