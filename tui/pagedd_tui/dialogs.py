"""What asks before something is done: ending a request, and giving it another priority."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pagedd.protocol import INT32_MAX, INT32_MIN

# Ctrl-C leaves from everywhere: the keys of the app do not reach what is in front of it.
LEAVE = Binding("ctrl+c", "app.quit", show=False, priority=True)


class Commands(CommandPalette):
    """The command palette, which Textual lets fail on keys that come before its list does."""

    BINDINGS: ClassVar[list[BindingType]] = [LEAVE]

    def _action_command_list(self, action: str) -> None:
        commands = self.query_one(CommandList)
        if commands.option_count and commands.size.height > 0:
            super()._action_command_list(action)


class Confirm(ModalScreen[bool]):
    """A question that ``y`` alone answers with yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        LEAVE,
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q,enter", "answer(False)", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Static("y: yes    n: no", classes="hint", markup=False)

    def action_answer(self, yes: bool) -> None:
        """Close."""
        self.dismiss(yes)


class AskPriority(ModalScreen[int | None]):
    """A number; escape for none."""

    BINDINGS: ClassVar[list[BindingType]] = [LEAVE, Binding("escape", "leave", show=False)]

    def __init__(self, question: str, now: int) -> None:
        super().__init__()
        self._question, self._now = question, now

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Input(str(self._now), type="integer", id="priority", compact=True)
            yield Static("enter: set it    esc: leave it as it is", classes="hint", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            priority = int(event.value)
        except ValueError:
            self.dismiss(None)
            return
        self.dismiss(max(INT32_MIN, min(priority, INT32_MAX)))

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)
