"""What has come of one choice of a request, and of those that never began."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from pagedd.protocol import Choice, Done, Generate, Ledger, Logprob, Usage
from pagedd.server.outbox import Piece
from pagedd.text.stream import ChoiceText

_NO_LEDGER = Ledger(0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0, 0)


class ChoiceSoFar:
    """What has come of one choice; its content is kept only when it is not streamed."""

    def __init__(self, text: ChoiceText, *, keep: bool, with_logprobs: bool) -> None:
        self.text = text
        self.num_tokens = 0
        self.tail = ""  # of its text, for who looks on
        self.finish_reason: str | UnsetType = UNSET
        self.stop_reason: str | int | UnsetType = UNSET
        self._kept_text: list[str] | None = [] if keep else None
        self._kept_tokens: list[int] = []
        self._kept_logprobs: list[Logprob] | None = [] if keep and with_logprobs else None

    def keep(self, piece: Piece) -> bool:
        """True when the piece was kept for ``done`` and is not to be sent now."""
        if self._kept_text is None:
            return False
        self._kept_text.append(piece.text)
        self._kept_tokens += piece.tokens
        if self._kept_logprobs is not None:
            self._kept_logprobs += piece.logprobs or ()
        return True

    def result(self, index: int) -> Choice:
        """How it ended, for ``done``."""
        assert isinstance(self.finish_reason, str)
        kept = self._kept_text is not None
        return Choice(
            index=index,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            text="".join(self._kept_text) if self._kept_text is not None else UNSET,
            tokens=self._kept_tokens if kept else UNSET,
            logprobs=UNSET if self._kept_logprobs is None else self._kept_logprobs,
        )


def cancelled_before_start(frame: Generate) -> Done:
    """The answer to a ``cancel`` that came while the prompt was tokenised: nothing was computed."""
    text: str | UnsetType = UNSET if frame.stream else ""
    tokens: list[int] | UnsetType = UNSET if frame.stream else []
    choices = [
        Choice(index=index, finish_reason="cancelled", text=text, tokens=tokens)
        for index in range(frame.params.n)
    ]
    return Done(frame.id, choices, Usage(0, 0, 0), _NO_LEDGER)
