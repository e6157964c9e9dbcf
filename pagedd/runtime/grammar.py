"""Grammars that answers keep to: which tokens may come next, by llguidance.

A grammar is a text in llguidance's form. It says of bytes whether they may follow; a token may be
drawn if its bytes may. Where an answer is complete, the model's end tokens may be drawn, and they
alone where nothing else can follow. No token is forced for how it is spelled (``no_forcing``), so
the mask depends on the bytes before it and on nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pagedd.engine.background import in_background
from pagedd.errors import BadRequest
from pagedd.text.guidance import MAX_STATES, NO_ANSWER, complaint
from pagedd_kernels.cpu.threads import default_threads

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer

logger = logging.getLogger(__name__)

KEPT = 512  # grammars that were built, last used; with texts of at most
KEPT_CHARACTERS = 4 << 20
KEPT_FAULTS = 1024
TOGETHER = 4  # masks from which on several threads fill them
ENOUGH_CORES = 4  # for that: with fewer, to hand the work over costs more than it gains


class Guide:
    """Where one choice of the request ``handle`` stands in its grammar.

    What llguidance finds out about a grammar is shared by all copies of a matcher, and so is its
    end: when one passes a limit, the others fail with it. So a guide can be put on a matcher of its
    own, once.
    """

    def __init__(self, matcher: LLMatcher, grammar: str, handle: int) -> None:
        self.matcher = matcher
        self.grammar = grammar
        self.handle = handle
        self.shares = True
        self._drawn: list[int] = []

    def advance(self, token: int) -> None:
        """The choice has drawn ``token``; after one that its mask forbids, nothing is allowed.

        -1 is none: the choice ends with an error.
        """
        if token >= 0:
            self._drawn.append(token)
            self.matcher.consume_token(token)

    def renew(self, matcher: LLMatcher) -> None:
        """Go on with one that nobody else has, at the same place."""
        self.matcher, self.shares = matcher, False
        matcher.consume_tokens(self._drawn)


class Grammars:
    """Builds grammars for the vocabulary of one model, and fills masks of its tokens.

    ``text_dir``: what ``text.prepare`` made of the model's tokenizer. ``vocab_size``: the width of
    its logits. ``build`` may run in another thread; ``guide`` and ``fill`` belong to the runner.
    """

    def __init__(self, text_dir: Path | str, *, vocab_size: int, eos_ids: Collection[int]) -> None:
        self._text_dir = text_dir
        self._vocab_size = vocab_size
        self._eos_ids = sorted(eos_ids)
        self._making = threading.Lock()  # of the tokenizer
        self._lock = threading.Lock()  # of what was built
        self._tokenizer: LLTokenizer | None = None
        self._built: OrderedDict[str, LLMatcher] = OrderedDict()
        self._characters = 0
        self._faults: OrderedDict[int, str] = OrderedDict()  # by handle

    @property
    def words(self) -> int:
        """The width of a mask, in 32 bits."""
        return -(-self._vocab_size // 32)

    def prepare(self) -> None:
        """Have the tokenizer ready in a while: half a second, in which no step is computed.

        Best called before there are any.
        """
        in_background("vocabulary", self._get_tokenizer)

    def is_built(self, grammar: str) -> bool:
        """No time is needed for this one."""
        return self._find(grammar) is not None

    def build(self, grammar: str) -> None:
        """Make ready what ``guide`` needs. Raises BadRequest that says what is wrong with it."""
        if not self._eos_ids:
            raise BadRequest("the model has no end token, so no grammar could end its answers")
        if self.is_built(grammar):
            return
        matcher = self._compile(grammar)
        if matcher.is_error():
            raise BadRequest(f"the grammar cannot be used: {complaint(matcher.get_error())}")
        first = matcher.deep_copy()
        if not any(first.compute_bitmask()) or first.is_error():
            raise BadRequest(f"the grammar cannot be used: {NO_ANSWER}")
        self._keep(grammar, matcher)

    def guide(self, grammar: str, generated: Sequence[int], handle: int = 0) -> Guide:
        """A guide for a choice of the request ``handle`` that has drawn ``generated``.

        If the grammar was built so long ago that it was forgotten, it is built again, in the step.
        """
        matcher = self._find(grammar)
        if matcher is None:
            matcher = self._compile(grammar)
            self._keep(grammar, matcher)
        guide = Guide(matcher.deep_copy(), grammar, handle)
        for token in generated:
            guide.advance(token)
        return guide

    def fill(self, guides: Sequence[Guide]) -> npt.NDArray[np.int32]:
        """The masks of ``guides`` → [guides, words], one bit a token, the lowest first.

        A guide that has failed allows nothing, and ``fault_of`` knows why.
        """
        masks = np.zeros((len(guides), self.words), dtype=np.int32)
        if len(guides) >= TOGETHER and self._executor is not None:
            rows = [(guide.matcher, row) for row, guide in enumerate(guides)]
            self._executor.unsafe_compute_mask_ptr(
                rows, masks.ctypes.data, masks.strides[0], len(guides)
            )
        else:
            for row, guide in enumerate(guides):
                guide.matcher.unsafe_compute_mask_ptr(masks[row].ctypes.data, masks.strides[0])
        for row, guide in enumerate(guides):
            if guide.matcher.is_error() and guide.shares:
                self._renew(guide, masks[row])
            if guide.matcher.is_error():
                self._note(guide)
                masks[row] = 0
        return masks

    def fault_of(self, handle: int) -> str | None:
        """Why the grammar of a request could not be followed; None if it could. Told once."""
        return self._faults.pop(handle, None)

    def _renew(self, guide: Guide, mask: npt.NDArray[np.int32]) -> None:
        """It may be that others have passed a limit, or all of them together; in the step."""
        self._forget(guide.grammar)
        guide.renew(self._compile(guide.grammar))
        guide.matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)

    def _note(self, guide: Guide) -> None:
        fault = complaint(guide.matcher.get_error()) or "it cannot be followed"
        logger.warning("a grammar failed: %s", fault)
        self._faults[guide.handle] = fault
        while len(self._faults) > KEPT_FAULTS:  # of requests that ended otherwise
            self._faults.popitem(last=False)

    @cached_property
    def _limits(self) -> LLParserLimits:
        from llguidance import LLParserLimits

        return LLParserLimits(max_lexer_states=MAX_STATES, verbose_errors=False)

    @cached_property
    def _executor(self) -> LLExecutor | None:
        from llguidance import LLExecutor

        cores = default_threads()
        return LLExecutor(cores) if cores >= ENOUGH_CORES else None

    def _get_tokenizer(self) -> LLTokenizer:
        with self._making:
            if self._tokenizer is None:
                self._tokenizer = _tokenizer(self._text_dir, self._vocab_size, self._eos_ids)
            return self._tokenizer

    def _compile(self, grammar: str) -> LLMatcher:
        """Never raises: a matcher that has failed says why."""
        from llguidance import LLMatcher

        return LLMatcher(self._get_tokenizer(), grammar, log_level=0, limits=self._limits)

    def _find(self, grammar: str) -> LLMatcher | None:
        with self._lock:
            matcher = self._built.get(grammar)
            if matcher is not None:
                self._built.move_to_end(grammar)
            return matcher

    def _keep(self, grammar: str, matcher: LLMatcher) -> None:
        with self._lock:
            if grammar in self._built:
                return
            self._built[grammar] = matcher
            self._characters += len(grammar)
            while len(self._built) > KEPT or self._characters > KEPT_CHARACTERS:
                oldest, _ = self._built.popitem(last=False)
                self._characters -= len(oldest)

    def _forget(self, grammar: str) -> None:
        with self._lock:
            if self._built.pop(grammar, None) is not None:
                self._characters -= len(grammar)


class _Vocabulary:
    """What llguidance asks of a tokenizer. It never needs to tokenise: nothing is forced."""

    bos_token_id: int | None = None

    def __init__(self, tokens: list[bytes], special: list[int], eos: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = eos

    def __call__(self, text: bytes | str) -> list[int]:
        raise NotImplementedError("tokens are not forced")


def _tokenizer(text_dir: Path | str, vocab_size: int, eos_ids: list[int]) -> LLTokenizer:
    """Each token by the bytes that it adds to a text; special ones and gaps add nothing."""
    from llguidance import LLTokenizer, TokenizerWrapper

    from pagedd.text.tokenizer import TextModel

    text = TextModel.load(text_dir)
    tokens = [text.token_bytes(token) for token in range(vocab_size)]
    special = sorted(token for token in text.special_ids | set(eos_ids) if token < vocab_size)
    vocabulary = TokenizerWrapper(_Vocabulary(tokens, special, eos_ids[0] if eos_ids else 0))
    return LLTokenizer(vocabulary, eos_token=eos_ids or None)
