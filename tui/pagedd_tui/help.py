"""``?``: what is on the screen, and every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from pagedd.protocol import CACHED, FREE, OWNED, SHARED, SWAPPED
from pagedd_tui import tones
from pagedd_tui.dialogs import LEAVE
from pagedd_tui.keys import GROUPS, Key
from pagedd_tui.lines import LinePanel
from pagedd_tui.palette import Palette
from pagedd_tui.plain import Line, fold, line, pad

_KEY_CELLS = 12
_READING = (
    "A page is the memory of the cache for some tokens of one request. The upper map is the memory "
    "of the device: what runs holds pages there. The lower one is host memory, where the pages of "
    "swapped requests are kept until they go on; their device pages are free meanwhile.",
    "Prompts that begin alike use the same pages: these are shared. Pages that nobody holds, but "
    "whose content may be asked for again, are cached; they are as good as free.",
    "Where there are more pages than cells, a cell stands for as many as the title says: its "
    "colour is what most of them are, its height how many are in use. Reverse video: changed "
    "just now, or of the chosen request.",
)
_ANSWERS = (
    ("most pages", "of the device; what the choices of a request share counts once"),
    (
        "next",
        "the first of the queue, marked in the table too: what it waits for, needs and lacks; what "
        "is to stay available is for those that run, which grow",
    ),
    ("sharing", "how many prompt tokens were found in the cache, and how many pages are shared"),
)
_HEADER = (
    ("run, wait", "requests that hold pages or slots, and those that hold none"),
    ("swap", "sequences whose pages wait in host memory"),
    ("KV, host", "pages of the device that requests hold; of host memory, the cached ones too"),
    ("hits", "of all prompt tokens, those that were found in the cache"),
)
_COLUMNS = (
    ("REQUEST", "the id its client gave it; /1, /2 … are more choices of the same request (n > 1)"),
    ("STATE", "swapped and preempted ones have begun, and wait as waiting ones do"),
    ("PROMPT→GEN", "tokens of the prompt, and generated until now"),
    ("PAGES", "pages of the device; of host memory, while it is swapped"),
    ("PRI", "priority; a smaller one is more urgent"),
    ("WAITED", "all its waits together; it goes on while the request waits or is preempted"),
    ("CACHED", "how much of the prompt was found in the cache"),
)


class Help(ModalScreen[None]):
    """Scrolls with the arrows; any of the keys that close things closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        LEAVE,
        Binding("escape,question_mark,q,f1", "dismiss", show=False),
        Binding("up,k", "lines(-1)", show=False),
        Binding("down,j", "lines(1)", show=False),
        Binding("pageup", "lines(-15)", show=False),
        Binding("pagedown,space", "lines(15)", show=False),
    ]

    def __init__(self, palette: Palette, keys: Sequence[Key], mark: str) -> None:
        super().__init__()
        self._palette, self._keys, self._mark = palette, keys, mark

    def compose(self) -> ComposeResult:
        panel = LinePanel(id="help")
        panel.border_title = "help"
        panel.border_subtitle = "arrows scroll, esc closes"
        yield panel

    def on_mount(self) -> None:
        self.call_after_refresh(self._fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def action_lines(self, count: int) -> None:
        """Scroll."""
        self.query_one("#help", LinePanel).scroll_lines(count)

    def _fill(self) -> None:
        panel = self.query_one("#help", LinePanel)
        panel.set_lines(help_lines(self._palette, self._keys, self._mark, panel.size.width))


def help_lines(palette: Palette, keys: Sequence[Key], mark: str, width: int) -> list[Line]:
    """All of it, for a width."""
    lines = [_title("what the pages are")]
    for state, host, meaning in (
        (FREE, False, "free"),
        (OWNED, False, "owned: one request holds it"),
        (SHARED, False, "shared: several requests hold it, because their prompts begin alike"),
        (CACHED, False, "cached: nobody holds it, but its content can be found again"),
        (SWAPPED, True, "swapped (host map): kept for a request until it goes on"),
    ):
        glyph = line((f"  {palette.glyph(state, host) * 3}  ", palette.style(state, host)))
        lines += _beside(glyph, 7, meaning, width)
    for text in _READING:
        lines += [(), *(line((each, tones.TEXT)) for each in fold(text, width))]
    lines += [(), _title("at a glance")]
    for label, meaning in _ANSWERS:
        shown = f"{mark} {label}" if label == "next" else label
        lines += _entry(shown, meaning, width)
    lines += [(), _title("the first line")]
    for label, meaning in _HEADER:
        lines += _entry(label, meaning, width)
    lines += [(), _title("the table of requests; #17 is the daemon's own number for a request")]
    for label, meaning in _COLUMNS:
        lines += _entry(label, meaning, width)
    for group, title in GROUPS.items():
        of_group = [key for key in keys if key.group == group]
        if of_group:
            lines += [(), _title(f"keys: {title}")]
        for key in of_group:
            lines += _entry(key.shown, key.help, width)
    return lines


def _title(text: str) -> Line:
    return line((text, tones.HEAD))


def _entry(label: str, meaning: str, width: int) -> list[Line]:
    head = line((f"  {pad(label, _KEY_CELLS)}", tones.KEY))
    return _beside(head, _KEY_CELLS + 2, meaning, width)


def _beside(head: Line, cells: int, text: str, width: int) -> list[Line]:
    first, *more = fold(text, max(width - cells, 10))
    return [
        (*head, *line((first, tones.TEXT))),
        *(line((" " * cells + each, tones.TEXT)) for each in more),
    ]
