"""The text of one choice: token ids in, text to show and the reason to stop out."""

from __future__ import annotations

from pagedd.text.detokenizer import Detokenizer
from pagedd.text.stops import Found, StopMatcher, StopStrings


class ChoiceText:
    """Joins detokenizer and stop strings for one choice.

    ``min_tokens``: a stop string counts only if the token that completes it is at least the
    ``min_tokens``-th of the choice; it may have begun in earlier text. Prompt text never takes
    part. The whole text of a choice is the same however its tokens were batched.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: StopStrings,
        *,
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops, include_stop=include_stop)
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._tokens = 0

    def push(self, token_id: int, *, end: bool = False, explicit: bool = False) -> Found:
        """The next token of the choice. After a ``stop`` nothing may be pushed or finished.

        ``end``: the engine ended the choice with this token; its text is not shown, unless it is
        ``explicit`` (named in ``stop_token_ids``) and ``include_stop`` is set.
        """
        self._tokens += 1
        if end and not (explicit and self._include_stop):
            return Found("", None)
        return self._matcher.push(self._detokenizer.push(token_id), armed=self._armed)

    def finish(self) -> Found:
        """What remains when the choice has ended without a stop string: half a character as
        U+FFFD, and text that was held back. Even this can complete a stop string."""
        found = self._matcher.push(self._detokenizer.flush(), armed=self._armed)
        if found.stop is not None:
            return found
        return Found(found.text + self._matcher.flush(), None)

    @property
    def _armed(self) -> bool:
        return self._tokens >= self._min_tokens
