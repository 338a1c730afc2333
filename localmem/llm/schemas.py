"""JSON schemas of answers, bounded, so that no answer can outgrow its prompt's `max_tokens`. Knows no prompt."""

from collections.abc import Mapping

from localmem.types import JsonSchema

Schema = Mapping[str, object]


def text(longest: int, *, empty: bool = False) -> Schema:
    """A string of at most so many characters."""
    return {"type": "string", "minLength": 0 if empty else 1, "maxLength": longest}


def number(low: int, high: int) -> Schema:
    """An integer from `low` to `high`, both included."""
    return {"type": "integer", "minimum": low, "maximum": high}


def boolean() -> Schema:
    """True or false."""
    return {"type": "boolean"}


def many(items: Schema, limit: int) -> Schema:
    """A list of at most so many items, perhaps none."""
    return {"type": "array", "items": items, "maxItems": limit}


def record(**fields: Schema) -> Schema:
    """An object with exactly these fields, in this order."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def answer(**fields: Schema) -> JsonSchema:
    """The format of an answer that is one object."""
    return JsonSchema(record(**fields))
