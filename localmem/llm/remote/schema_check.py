"""Whether an answer follows its JSON schema, for servers that do not enforce one, and what to ask for instead.

Knows the part of JSON Schema that prompts use; anything else counts as followed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from localmem.types import FreeText, Message, Prompt

Schema = Mapping[str, Any]

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_LIMITS = (("minLength", len, -1), ("maxLength", len, 1), ("minItems", len, -1), ("maxItems", len, 1))


def with_schema_text(prompt: Prompt, schema: Schema) -> Prompt:
    """The prompt with its schema in words, for a server that knows no schemas."""
    *before, last = prompt.messages
    text = f"{last.content}\n\nAnswer with JSON alone, which follows this JSON schema:\n{json.dumps(dict(schema))}"
    return replace(prompt, messages=(*before, replace(last, content=text)), format=FreeText())


def repair_prompt(prompt: Prompt, answer: str, problem: str) -> Prompt:
    """The prompt that asks once more, with the answer and what is wrong with it."""
    text = f"That is not right: {problem}. Answer with the corrected JSON alone."
    return replace(prompt, messages=(*prompt.messages, Message("assistant", answer), Message("user", text)))


def json_part(text: str, *, is_cut: bool = False) -> str:
    """The JSON in an answer that may have words or a fence around it; all that follows its beginning if it was cut."""
    start = min((place for place in (text.find("{"), text.find("[")) if place >= 0), default=0)
    if is_cut:
        return text[start:]
    end = max(text.rfind("}"), text.rfind("]"))
    return text[start : end + 1] if end > start else text.strip()


def find_problem(text: str, schema: Schema) -> str:
    """What is wrong with the answer; "" if nothing is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "it is not JSON"
    return next(_problems(value, schema, "the answer"), "")


def _problems(value: object, schema: Schema, place: str) -> Iterator[str]:
    if "const" in schema and value != schema["const"]:
        yield f"{place} must be {json.dumps(schema['const'])}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} must be one of {json.dumps(schema['enum'])}"
    kinds = _KINDS.get(str(schema.get("type")), (object,))
    if not isinstance(value, kinds) or (isinstance(value, bool) and int in kinds):
        yield f"{place} must be of the type {schema['type']}"
        return
    yield from _outside(value, schema, place)
    if isinstance(value, dict):
        yield from _field_problems(value, schema, place)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for number, item in enumerate(value, 1):
            yield from _problems(item, schema["items"], f"item {number} of {place}")


def _field_problems(value: Mapping[str, object], schema: Schema, place: str) -> Iterator[str]:
    fields: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place} has no field {name!r}"
    for name, item in value.items():
        if name in fields:
            yield from _problems(item, fields[name], f"the field {name!r}")
        elif schema.get("additionalProperties") is False:
            yield f"{place} must not have a field {name!r}"


def _outside(value: object, schema: Schema, place: str) -> Iterator[str]:
    """Sizes, bounds and patterns that are not kept."""
    for key, size, sign in _LIMITS:
        if key in schema and isinstance(value, str | list) and (size(value) - schema[key]) * sign > 0:
            yield f"{place} breaks {key} {schema[key]}"
    for key, sign in (("minimum", -1), ("maximum", 1)):
        if key in schema and isinstance(value, int | float) and (value - schema[key]) * sign > 0:
            yield f"{place} breaks {key} {schema[key]}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{place} does not match {schema['pattern']}"
