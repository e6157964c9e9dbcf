"""JSON by a schema, as an item of a grammar for llguidance."""

from __future__ import annotations

from typing import Any

import msgspec

from pagedd.errors import BadRequest

# One way to write JSON: a model with a taste for white space could go on with it for ever.
JSON_STYLE: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


def json_grammar(schema: dict[str, Any], *, lenient: bool = False) -> str:
    """A schema as an item of a Lark rule. Raises BadRequest if it is nested too deeply.

    ``lenient``: what llguidance does not know of the schema is left out, instead of refused.
    """
    style = {**JSON_STYLE, "lenient": lenient, "coerce_one_of": lenient}
    try:
        text = msgspec.json.encode({**schema, "x-guidance": style}).decode()
    except RecursionError:
        raise BadRequest("the schema is nested too deeply") from None
    return f"%json {text}"
