"""Calls of tools that must come: a grammar in which nothing else can be written.

The calls have the form of the Hermes models (:mod:`pagedd.text.tools`), the name before the
arguments. The marks are written as text: a vocabulary may have a token for them or not. Only where
that is a special token is it left to tokens that spell the mark, so that it is part of the text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from pagedd.errors import BadRequest
from pagedd.protocol import Tool
from pagedd.text.guidance import MAX_GRAMMAR, json_grammar
from pagedd.text.tools import CALL_BEGIN, CALL_END

NO_ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


def tool_grammar(tools: Sequence[Tool], only: str | None, *, parallel: bool = True) -> str:
    """Lark for llguidance: one call or more, each of one of ``tools``, arguments by its schema.

    ``only``: one call, of the function with this name. Not ``parallel``: one call. What a schema
    says that llguidance cannot honour is left out, unless the tool is ``strict``. Raises
    BadRequest if there is nothing to call, or a schema is nested too deeply, or they are too long.
    """
    functions = [tool.function for tool in tools if only in (None, tool.function.name)]
    if not functions:
        raise BadRequest("tools: there is nothing to call")
    many = parallel and only is None
    lines = [f"start: call{' (NEWLINE call)*' if many else ''}"]
    lines.append("call: " + " | ".join(f"call_{at}" for at in range(len(functions))))
    size = 0
    for at, function in enumerate(functions):
        head = f'{CALL_BEGIN}\n{{"name": {json.dumps(function.name)}, "arguments": '
        schema = NO_ARGUMENTS if function.parameters is UNSET else function.parameters
        schema = {"type": "object", **schema}
        try:
            arguments = json_grammar(schema, lenient=function.strict is not True)
        except BadRequest as error:
            raise BadRequest(f"tools: {function.name}: {error.message}") from None
        lines.append(
            f"call_{at}: {_literal(head)} arguments_{at} {_literal('}' + chr(10) + CALL_END)}"
        )
        lines.append(f"arguments_{at}: {arguments}")
        size += len(arguments)
        if size > MAX_GRAMMAR:
            raise BadRequest(
                f"tools: as a grammar their schemas have more than {MAX_GRAMMAR} characters, which "
                "is the limit"
            )
    if many:
        lines.append(r"NEWLINE: /\n/")
    return "\n".join(lines)


def _literal(text: str) -> str:
    return msgspec.json.encode(text).decode()
