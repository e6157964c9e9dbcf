"""Every key in one table: the bindings, the footer and the help are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character


@dataclass(frozen=True, slots=True)
class Key:
    """``id`` is what a key map names. ``hint``: the word of the footer, empty where there is none.

    ``commands``: whether it changes what the daemon does, so that ``--readonly`` has no such key.
    """

    id: str
    keys: str  # as Textual calls them, with commas between
    shown: str
    action: str
    help: str
    hint: str = ""
    group: str = "look"
    commands: bool = False


KEYS = (
    Key("help", "question_mark,f1", "?", "help", "this help", "help", "general"),
    Key(
        "filter", "slash", "/", "filter", "filter: state:swapped owner:r41 pages:>8 word", "filter"
    ),
    Key("sort", "s", "s", "sort", "sort the requests by the next column", "sort"),
    Key("reverse", "r", "r", "reverse", "sort the other way round"),
    Key("open", "enter", "enter", "open", "all about the chosen request", "open"),
    Key("back", "escape", "esc", "leave", "back; drop the filter", "back"),
    Key("freeze", "space", "space", "freeze", "freeze and go on; what comes is recorded", "freeze"),
    Key("colour", "c", "c", "colour", "colour pages by state, owner, age, references", "colour"),
    Key("view_1", "1", "1", "view(1)", "overview", group="views"),
    Key("view_2", "2", "2", "view(2)", "the maps alone", group="views"),
    Key("view_3", "3", "3", "view(3)", "the requests alone", group="views"),
    Key("view_4", "4", "4", "view(4)", "history: throughput, queues, step phases", group="views"),
    Key("view_5", "5", "5", "view(5)", "events and their reasons", group="views"),
    Key("next_panel", "tab", "tab", "panel(1)", "the next panel", "panel", "views"),
    Key("last_panel", "shift+tab", "shift+tab", "panel(-1)", "the panel before", group="views"),
    Key("move", "", "arrows hjkl", "", "choose a request; move over the pages", group="move"),
    Key("page", "", "pgup pgdn", "", "by a screen", group="move"),
    Key("maximise", "m", "m", "maximise", "this panel alone, and back", group="views"),
    Key("zoom_in", "plus,equals_sign", "+", "zoom(1)", "fewer pages a cell", "zoom"),
    Key("zoom_out", "minus", "-", "zoom(-1)", "more pages a cell"),
    Key("step_back", "left_square_bracket", "[", "step(-1)", "a frame back", group="time"),
    Key("step_on", "right_square_bracket", "]", "step(1)", "a frame on", group="time"),
    Key("seek_back", "comma", ",", "seek(-10)", "10 s back", group="time"),
    Key("seek_on", "full_stop", ".", "seek(10)", "10 s on", group="time"),
    Key("live", "end", "end", "live", "live again", group="time"),
    Key("export", "e", "e", "export", "write the picture as JSON and SVG", group="general"),
    Key("theme", "t", "t", "theme", "the next palette of colours", group="general"),
    Key("palette", "ctrl+p", "ctrl+p", "command_palette", "commands by name", group="general"),
    Key("quit", "q", "q", "quit", "quit", "quit", "general"),
    Key("cancel", "x", "x", "cancel", "end the chosen request", "end", "act", commands=True),
    Key("priority", "p", "p", "priority", "another priority for it", "priority", "act", True),
)
GROUPS: Mapping[str, str] = {
    "views": "views",
    "look": "look",
    "time": "time",
    "move": "move",
    "act": "act on the chosen request",
    "general": "general",
}
IDS = frozenset(key.id for key in KEYS)


def bindings() -> list[BindingType]:
    """For the app."""
    return [
        Binding(key.keys, key.action, key.help, id=key.id, show=False, priority=key.id in _FIRST)
        for key in KEYS
        if key.id not in _ELSEWHERE
    ]


def mapped(key_map: Mapping[str, str]) -> tuple[Key, ...]:
    """The table, with other keys for some ids."""
    return tuple(replace(key, shown=key_map.get(key.id, key.shown)) for key in KEYS)


def shown_for(id: str, keys: Iterable[Key]) -> str:
    """What is shown for a key, by its id."""
    return next(key.shown for key in keys if key.id == id)


def problem_of(key_map: Mapping[str, str]) -> str:
    """What is wrong with other keys for some ids: one that no terminal has, or one for two ids.

    Empty: nothing.
    """
    for chosen in key_map.values():
        for name in _names(chosen):
            if not _exists(name):
                return f"there is no key {name!r}"
    taken = dict.fromkeys(_MOVES, "move") | {"ctrl+c": "quit"}
    for key in KEYS:
        for name in _names(key_map.get(key.id, key.keys)):
            other = taken.setdefault(name, key.id)
            if other != key.id:
                return f"{_shown(name)} would be the key of {other} and of {key.id}"
    return ""


def _names(keys: str) -> list[str]:
    """One by one; a character is itself, however it is called."""
    parts = [part.strip() for part in keys.split(",")] if keys else []
    characters = (key_to_character(_UNICODE_NAMES.get(part, part)) for part in parts)
    return [
        character if character and character.isprintable() else part
        for part, character in zip(parts, characters, strict=True)
    ]


def _exists(name: str) -> bool:
    if len(name) == 1:
        return name.isprintable()
    modifiers, _, last = name.rpartition("+")
    plain = len(last) == 1 or last in _NAMED or key_to_character(last) is not None
    return name in _NAMED or (plain and bool(modifiers) and set(modifiers.split("+")) <= _MODIFIERS)


def _shown(name: str) -> str:
    return next((key.shown for key in KEYS if name in _names(key.keys)), name)


def permitted(keys: Iterable[Key], can_command: bool) -> list[Key]:
    """Those that there are, in the order of the table."""
    return [key for key in keys if can_command or not key.commands]


_UNICODE_NAMES = {name: unicode for unicode, name in KEY_NAME_REPLACEMENTS.items()}
_NAMED = frozenset(key.value for key in Keys)
_MOVES = ("up", "down", "left", "right", *"hjkl", "pageup", "pagedown")
_MODIFIERS = frozenset(("ctrl", "shift", "alt"))
_FIRST = frozenset(("next_panel", "last_panel"))  # before Textual moves the focus by itself
_ELSEWHERE = frozenset(("palette", "move", "page"))  # of the panels, and of Textual
