"""Chat templates: Jinja from the model's files, run in a sandbox with a budget.

The environment offers what templates written for transformers expect (``apply_chat_template``):
blocks trimmed, ``break`` and ``continue``, ``raise_exception``, ``strftime_now``, ``tojson``
without HTML escapes, and ``{% generation %}`` without meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pagedd.errors import BadRequest

MAX_STEPS = 1_000_000  # loop turns and calls of one rendering: about a second
MAX_CHARS = 32 * 1024 * 1024  # of one rendering: twice the largest frame
MAX_MESSAGE = 500  # characters of a template's own message that an error repeats
_BUDGET = "_pagedd_budget"


class ChatTemplate:
    """One model's template. ``source`` None: the model has none, and rendering says so.

    ``named``: special tokens as the template knows them (``bos_token``, …). ``now``: the clock of
    ``strftime_now``. A template that cannot be compiled refuses chats, not the model.
    """

    def __init__(
        self,
        source: str | None,
        named: Mapping[str, str],
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._named = dict(named)
        self._template: jinja2.Template | None = None
        self.takes_tools = False  # the template writes the tools of a chat itself
        self._refusal = "this model has no chat template: send its text as prompt"
        if source is None:
            return
        try:
            self._template, self.takes_tools = _compile(source, now)
        except (jinja2.TemplateError, RecursionError) as error:
            self._refusal = f"the model's chat template is invalid: {_shortened(error)}"

    @property
    def usable(self) -> bool:
        """Whether the model has a template that compiles."""
        return self._template is not None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The prompt's text. The template alone decides which roles it takes, in which order.

        Errors: ``BadRequest`` with the template's own message where it refuses, fails, or does
        not end within its budget.
        """
        if self._template is None:
            raise BadRequest(self._refusal)
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(
                **self._named,
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **{_BUDGET: _Budget()},
            ):
                size += len(part)
                if size > MAX_CHARS:
                    raise BadRequest(f"messages: the rendered chat is over {MAX_CHARS} characters")
                parts.append(part)
        except BadRequest:
            raise
        except Exception as error:  # a template is a program: it can fail in any way
            raise BadRequest(f"messages: the chat template refused: {_shortened(error)}") from error
        return "".join(parts)


class _Budget:
    """What is left of one rendering's steps."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise jinja2.TemplateRuntimeError(f"it took more than {MAX_STEPS} steps")


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, which also counts calls: macros can recurse without any loop."""

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _budget(__context).take()
        return super().call(__context, __obj, *args, **kwargs)


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's part for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _compile(source: str, now: Callable[[], datetime]) -> tuple[jinja2.Template, bool]:
    """The template, and whether it asks for ``tools``."""
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.filters[_BUDGET] = _counted
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    tree = environment.parse(source)
    takes_tools = "tools" in meta.find_undeclared_variables(tree)
    # Loops over ranges and lists call nothing, so each loop's iterable is wrapped.
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, _BUDGET, [], [], None, None, lineno=loop.lineno)
    return environment.from_string(tree), takes_tools


@jinja2.pass_context
def _counted(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    budget = _budget(context)
    for item in items:
        budget.take()
        yield item


def _budget(context: Context) -> _Budget:
    budget = context.resolve(_BUDGET)
    assert isinstance(budget, _Budget)
    return budget


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _shortened(error: BaseException) -> str:
    message = str(error) or type(error).__name__
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
