"""The form that an answer must have → a grammar for the engine, by llguidance.

``grammar_of`` writes it, in a time that follows the length of what was given; ``check_grammar``
reads it as the engine will, but for the vocabulary, which can take a second: for a worker thread.
What llguidance cannot honour it refuses, and so does this: a keyword of a schema, a format, a part
of a regular expression. Only then is it loaded.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pagedd.errors import BadRequest
from pagedd.protocol import Params
from pagedd.server.probing import fault_at_start, fault_further_on
from pagedd.text.guidance import MAX_GRAMMAR, MAX_STATES, OPTIONS, complaint, json_grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher

MAX_REGEX = 16 * 1024
# Above it, automata that count remainders take seconds to build, and nothing else limits them.
MAX_MULTIPLE = 10_000
KEPT = 64  # grammars whose faults are remembered

# Of Lark: strings, regular expressions, comments; and what is written between them to intersect
# and negate terminals (~ before a number repeats).
_LITERALS = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\])+/', re.DOTALL)
_OPERATORS = re.compile(r"&|~(?!\s*\d)")
FIELDS = ("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
_MULTIPLE = re.compile(r'"multipleOf"\s*:\s*([-+.0-9eE]+)')
_ESCAPED = re.compile(r"\\u00([0-7][0-9a-fA-F])")
# Attributes of rules that only a server can carry out which ours is not.
_ATTRIBUTES = re.compile(
    r"^\s*[!?]?[\w.-]+\[[^\]\n]*\b(temperature|max_tokens|stop)\s*=", re.MULTILINE
)


def check_combination(params: Params) -> None:
    """Raises BadRequest for two forms at once, and for what would keep an answer from its end."""
    wanted = params.response_format
    if wanted is not None and (wanted.type == "json_schema") != (wanted.json_schema is not None):
        raise BadRequest(
            "params.response_format.json_schema: must be given with the type json_schema, and only "
            "then"
        )
    given = _given(params)
    if len(given) > 1:
        raise BadRequest(
            f"params: give at most one of {' and '.join(FIELDS)}; got {', '.join(given)}"
        )
    if not given:
        return
    if params.min_tokens:
        raise BadRequest(
            f"params.min_tokens: not with {given[0]}, which says where the answer ends"
        )
    if params.ignore_eos:
        raise BadRequest(
            f"params.ignore_eos: not with {given[0]}, which says where the answer ends"
        )


def has_grammar(params: Params) -> bool:
    """Whether ``check_grammar`` has anything to do."""
    return bool(_given(params))


def grammar_of(params: Params) -> str | None:
    """In llguidance's form of Lark; None where the answer may have any.

    Raises BadRequest, naming the field: too long, or beyond what bounds its cost.
    """
    given = _given(params)
    if not given:
        return None
    field = _path(params, given[0])
    grammar = _written(params, field)
    if len(grammar) > MAX_GRAMMAR:
        raise BadRequest(
            f"{field}: as a grammar it has {len(grammar)} characters, the limit is {MAX_GRAMMAR}"
        )
    _check_multiples(grammar, field)
    return grammar


def check_grammar(params: Params) -> str | None:
    """As ``grammar_of``. Raises BadRequest, naming the field, for what the engine could not use."""
    grammar = grammar_of(params)
    if grammar is None:
        return None
    fault = _fault(grammar, walk=params.guided_grammar is None)
    if fault is not None:
        raise BadRequest(blaming(params, fault))
    return grammar


def blaming(params: Params, message: str) -> str:
    """What the engine says of a grammar, with the field in front that it came from."""
    given = _given(params)
    return f"{_path(params, given[0])}: {message}" if given else message


def _given(params: Params) -> list[str]:
    """Those that ask for something, by name."""
    given = [name for name in FIELDS if getattr(params, name) is not None]
    if params.response_format is not None and params.response_format.type == "text":
        given.remove("response_format")
    return given


def _path(params: Params, name: str) -> str:
    """What an error names."""
    schema = params.response_format is not None and params.response_format.type == "json_schema"
    return f"params.{name}{'.json_schema.schema' if schema else ''}"


def _written(params: Params, field: str) -> str:
    """The grammar of the one form that was given."""
    if params.guided_grammar is not None:
        return _checked_lark(params.guided_grammar, field)
    if params.guided_regex is not None:
        from llguidance import regex_to_lark

        if len(params.guided_regex) > MAX_REGEX:
            raise BadRequest(
                f"{field}: it has {len(params.guided_regex)} characters, the limit is {MAX_REGEX}"
            )
        rule = f"/{regex_to_lark(params.guided_regex)}/"
    elif params.guided_choice is not None:
        rule = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in params.guided_choice)
    else:
        try:
            rule = json_grammar(_schema(params, field))
        except BadRequest as error:
            raise BadRequest(f"{field}: {error.message}") from None
    return f"start: {rule}\n{OPTIONS}\n"


def _schema(params: Params, field: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    if params.guided_json is not None:
        schema = params.guided_json
    elif params.response_format is not None and params.response_format.json_schema is not None:
        schema = params.response_format.json_schema.schema
    if "x-guidance" in schema:
        raise BadRequest("x-guidance: the way in which JSON is written cannot be chosen")
    return schema


def _checked_lark(text: str, field: str) -> str:
    """Raises BadRequest for what looks like another form, and what could not be honoured."""
    if text.lstrip().startswith("{"):
        raise BadRequest(f"{field}: expected a grammar in Lark's form, got JSON")
    bare = _LITERALS.sub(" ", text)
    if _OPERATORS.search(bare):
        raise BadRequest(
            f"{field}: the operators & and ~ of terminals are not supported: what they cost has no "
            "limit"
        )
    found = _ATTRIBUTES.search(bare)
    if found is not None:
        raise BadRequest(f"{field}: the attribute {found[1]} of a rule is not supported")
    return f"{text}\n{OPTIONS}\n"


def _check_multiples(grammar: str, field: str) -> None:
    """``multipleOf`` of several places may come together in one automaton: their product counts."""
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), grammar)
    product = 1
    for found in _MULTIPLE.finditer(text):
        product = math.lcm(product, _digits(found[1]))
        if product > MAX_MULTIPLE:
            raise BadRequest(
                f"{field}: multipleOf {found[1]} is too much, by itself or with the others: the "
                f"least common multiple of their digits may be {MAX_MULTIPLE}"
            )


def _digits(number: str) -> int:
    """2.50 → 25: powers of ten cost nothing."""
    try:
        digits = Decimal(number).normalize().as_tuple().digits
    except InvalidOperation:
        return 1
    return max(1, int("".join(map(str, digits))))


@lru_cache(maxsize=KEPT)
def _fault(grammar: str, *, walk: bool) -> str | None:
    """What llguidance finds wrong with it, as far as a while of following it tells.

    ``walk``: and with what comes first in the answer. It is followed by bytes, which have no
    special tokens that a grammar could name.
    """
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    limits = LLParserLimits(
        max_lexer_states=MAX_STATES, verbose_errors=False, precompute_large_lexemes=False
    )
    tokenizer = LLTokenizer("byte")

    def make(text: str) -> LLMatcher:
        return LLMatcher(tokenizer, text, log_level=0, limits=limits)

    if walk:
        fault = fault_at_start(make(grammar))
    else:
        fault = complaint(LLMatcher.validate_grammar(grammar, None, limits=limits))
    return fault or fault_further_on(grammar, make)
