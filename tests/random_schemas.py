"""Small JSON schemas by chance, whose answers have an end: nothing in them is without a bound."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]
WORDS = ("name", "age", "city", "tags", "price", "notes", "kind", "items", "ok", "born", "x-y", "é")


def random_schema(seed: int) -> Schema:
    """An object, its parts nested up to three deep."""
    rng = random.Random(seed)
    schema = _object(rng, 2)
    if rng.random() < 0.3:
        schema["$defs"] = {"part": _object(rng, 1)}
        schema["properties"]["part"] = {"$ref": "#/$defs/part"}
        schema["required"].append("part")
    return schema


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(WORDS, rng.randrange(1, 5))
    return {
        "type": "object",
        "properties": {name: _value(rng, depth) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
        "additionalProperties": False,
    }


def _value(rng: random.Random, depth: int) -> Schema:
    kinds = [_text, _integer, _number, _choice, _plain]
    if depth:
        kinds += [_array, _tuple, _either, lambda rng: _object(rng, depth - 1)]
    return rng.choice(kinds)(rng)


def _text(rng: random.Random) -> Schema:
    return rng.choice(
        [
            {"type": "string", "maxLength": rng.randrange(1, 16)},
            {"type": "string", "minLength": 3, "maxLength": 12},
            {"type": "string", "pattern": "^[A-Z][a-z]{1,8}( [A-Z][a-z]{1,8})?$"},
            {"type": "string", "pattern": "^(\\d{3}-)?\\d{4}$"},
            {"type": "string", "format": "date"},
            {"type": "string", "format": "uuid"},
            {"type": "string", "format": "ipv4"},
        ]
    )


def _integer(rng: random.Random) -> Schema:
    least = rng.randrange(-50, 200)
    bounds: Schema = {"type": "integer", "minimum": least, "maximum": least + rng.randrange(10**5)}
    if rng.random() < 0.3:
        bounds |= {"maximum": least + 1000, "multipleOf": rng.choice([2, 5, 25])}
    return bounds


def _number(rng: random.Random) -> Schema:
    step = rng.choice([0.5, 0.25, 1])
    return {"type": "number", "exclusiveMinimum": 0, "maximum": 1000, "multipleOf": step}


def _choice(rng: random.Random) -> Schema:
    values: list[Any] = ["red", "dark green", 'a "quoted" one', "naïve", 7, -1, 2.5, None, True]
    if rng.random() < 0.3:
        return {"const": rng.choice(values)}
    return {"enum": rng.sample(values, rng.randrange(2, 6))}


def _plain(rng: random.Random) -> Schema:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"]])}


def _array(rng: random.Random) -> Schema:
    most = rng.randrange(1, 4)
    return {
        "type": "array",
        "items": _value(rng, 0),
        "minItems": rng.randrange(most + 1),
        "maxItems": most,
    }


def _tuple(rng: random.Random) -> Schema:
    items = [_value(rng, 0) for _ in range(rng.randrange(1, 4))]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


def _either(rng: random.Random) -> Schema:
    return {"anyOf": [_value(rng, 0), _object(rng, 0)]}


def schema_of(schema: Schema) -> dict[str, Any]:
    """Parameters that ask for an answer of ``schema``."""
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    }
