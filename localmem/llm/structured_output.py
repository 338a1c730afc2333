"""Answers in a format: bounded JSON schemas to ask for, and what to do with an answer that does not keep to its format.

An answer outside its format becomes None, so that the caller can use a fallback; any other failure of the backbone is
raised, and the step is repeated as a whole. Does not depend on any system or prompt.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from localmem.errors import BadReply, PartialFailure
from localmem.llm.base import LLM
from localmem.types import Completion, JsonSchema, Prompt

log = logging.getLogger(__name__)

# Every schema has an upper bound, so that no answer can need more tokens than its prompt's `max_tokens` allows.
Schema = Mapping[str, object]


def string(longest: int, *, empty: bool = False) -> Schema:
    """A string of at most `longest` characters."""
    return {"type": "string", "minLength": 0 if empty else 1, "maxLength": longest}


def integer(low: int, high: int) -> Schema:
    """An integer from `low` to `high`, both included."""
    return {"type": "integer", "minimum": low, "maximum": high}


def boolean() -> Schema:
    """True or false."""
    return {"type": "boolean"}


def array(items: Schema, limit: int) -> Schema:
    """A list of at most `limit` items, possibly empty."""
    return {"type": "array", "items": items, "maxItems": limit}


def record(**fields: Schema) -> Schema:
    """An object with exactly these fields, in this order."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def answer_format(**fields: Schema) -> JsonSchema:
    """The format of an answer that is one object."""
    return JsonSchema(record(**fields))


def generate_usable(llm: LLM, prompts: Sequence[Prompt], fallbacks: Counter[str]) -> list[Completion | None]:
    """The answers to `prompts`, requested together, in order; None for each answer outside its format.

    Formats are enforced while decoding, so an answer is outside its format only when its tokens ran out. Repeating the
    request would end the same way at temperature 0. Each None is logged, and counted in `fallbacks` by prompt name.
    """
    answers = _generate(llm, prompts) if prompts else []
    for prompt, answer in zip(prompts, answers, strict=True):
        if answer is None:
            count_fallback(prompt.name, "its answer does not match its format", fallbacks)
    return answers


def count_fallback(name: str, reason: str, fallbacks: Counter[str]) -> None:
    """Logs and counts one fallback of the prompt called `name`."""
    log.warning("%s: %s; using the fallback", name, reason)
    fallbacks[name] += 1


def _generate(llm: LLM, prompts: Sequence[Prompt]) -> list[Completion | None]:
    try:
        return list(llm.generate(prompts))
    except BadReply:
        return [None] * len(prompts)
    except PartialFailure as failure:
        answers = [result for result in failure.results if isinstance(result, Completion | BadReply)]
        if len(answers) < len(prompts):
            raise
        return [answer if isinstance(answer, Completion) else None for answer in answers]
