"""The assistant's turn of one choice: text, and calls of tools where there are tools."""

from __future__ import annotations

import secrets

from msgspec import UNSET

from pagedd.server.http.answers import Call, CallDelta, CalledFunction, ChatAnswer, ChatDelta
from pagedd.text.tool_calls import Argued, Called, Said, Spoken, ToolCalls


class Turn:
    """``calls``: look for calls in the text; ``one_call``: later ones are left out."""

    def __init__(self, *, calls: bool, one_call: bool) -> None:
        self._reader = ToolCalls() if calls else None
        self._one_call = one_call
        self._calls = 0  # begun, the one that is being written included

    def deltas(self, text: str, *, ends: bool, reason: str = "stop") -> list[ChatDelta]:
        """What to send of a piece of text; ``ends``: it is the last one, for that ``reason``."""
        if self._reader is None:
            return [ChatDelta(content=text)] if text else []
        spoken = self._reader.push(text)
        if ends:
            spoken += self._reader.finish(cut=reason == "length")
        return [delta for each in spoken if (delta := self._delta(each)) is not None]

    def message(self, text: str, reason: str = "stop") -> ChatAnswer:
        """The whole turn."""
        said: list[str] = []
        calls: list[list[str]] = []
        for delta in self.deltas(text, ends=True, reason=reason):
            if isinstance(delta.content, str):
                said.append(delta.content)
            for part in delta.tool_calls or ():
                if isinstance(part.id, str) and isinstance(part.function.name, str):
                    calls.append([part.id, part.function.name, ""])
                calls[-1][2] += part.function.arguments
        content = "".join(said)
        if not calls:
            return ChatAnswer(content)
        made = [Call(id, CalledFunction(arguments, name)) for id, name, arguments in calls]
        return ChatAnswer(content or None, made)

    def finish_reason(self, reason: str) -> str:
        """``tool_calls`` when the turn ended by itself and there are some."""
        return "tool_calls" if reason == "stop" and self._calls else reason

    def _delta(self, spoken: Spoken) -> ChatDelta | None:
        if isinstance(spoken, Said):
            return ChatDelta(content=spoken.text)
        if isinstance(spoken, Called):
            self._calls += 1
        if self._one_call and self._calls > 1:
            return None
        function = CalledFunction(
            spoken.text if isinstance(spoken, Argued) else "",
            spoken.name if isinstance(spoken, Called) else UNSET,
        )
        if isinstance(spoken, Argued):
            return ChatDelta(tool_calls=[CallDelta(self._calls - 1, function)])
        id = f"call_{secrets.token_hex(12)}"
        return ChatDelta(tool_calls=[CallDelta(self._calls - 1, function, id, "function")])
