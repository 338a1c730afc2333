"""Filtering of traces: drops what a student should not learn and divides conversations into parts, counting both.

A conversation is in one part of every division. Facts of a text are approximated by words: a fact is a sentence, and
those of a JSON answer are in its strings. A paraphrase with other words counts as missing, and a distortion with the
same words as present: the figures compare models, they prove nothing. Does not depend on any model.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple

import jsonschema  # type: ignore[import-untyped]  # its stubs are a separate package

from finetune.traces.trace import Trace
from localmem.errors import BadInput
from localmem.evaluation.metrics.text import match_sentences, rouge_similarities
from localmem.text.parse import sentences

Part = Literal["train", "valid", "test"]
Reason = str

GROUNDED = 0.5  # share of a text's content words that must occur in its source
PARTS: tuple[Part, ...] = ("train", "valid", "test")
TEXT_STAGES = frozenset({"summarize", "refine", "blend", "respond", "day", "events", "compress"})

_WORD = re.compile(r"\w+")
_LONG = 4  # letters from which a word counts as a content word


@dataclass(frozen=True, slots=True)
class FilteredTraces:
    """The remaining traces by part, and the number of dropped ones by reason."""

    parts: Mapping[Part, tuple[Trace, ...]]
    dropped: Mapping[Reason, int] = field(default_factory=dict)


def filter_traces(
    traces: Iterable[Trace],
    stage: str,
    *,
    seed: int = 0,
    reject: Callable[[Trace], Reason | None] = lambda _: None,
) -> FilteredTraces:
    """The traces that are complete, well-formed, grounded and new, divided 80 : 10 : 10 by conversation.

    `reject` may give a reason to drop a trace that passes all other checks. Raises BadInput if nothing remains.
    """
    parts: dict[Part, list[Trace]] = {part: [] for part in PARTS}
    dropped: Counter[Reason] = Counter()
    ids: set[str] = set()
    for trace in traces:
        reason = "duplicate" if trace.id in ids else find_problem(trace, stage) or reject(trace)
        ids.add(trace.id)
        if reason:
            dropped[reason] += 1
        else:
            parts[part_of(trace, seed)].append(trace)
    if not any(parts.values()):
        raise BadInput(f"none of {len(ids)} traces of {stage!r} can be learned from ({dict(dropped)}); collect more")
    return FilteredTraces({part: tuple(remaining) for part, remaining in parts.items()}, dict(dropped))


def part_of(trace: Trace, seed: int = 0) -> Part:
    """The part of the trace's conversation, whatever system read it."""
    work = trace.metadata.work
    number = sha256(f"{seed}/{work.dataset}/{work.episode}".encode()).digest()[0]
    return "train" if number < 205 else "valid" if number < 230 else "test"  # of 256


def find_problem(trace: Trace, stage: str) -> Reason | None:
    """Why a student should not learn this trace, or None."""
    if not trace.answer.strip():
        return "empty"
    if trace.metadata.finish == "length":
        return "cut short"
    if not is_valid(trace.answer, trace):
        return "wrong format"
    if stage in TEXT_STAGES and groundedness(trace) < GROUNDED:
        return "not grounded in the prompt"
    return None


def is_valid(answer: str, trace: Trace) -> bool:
    """Whether an answer is one of the trace's options, or fits its schema."""
    metadata = trace.metadata
    if metadata.options:
        return answer in metadata.options
    if metadata.schema is None:
        return True
    try:
        jsonschema.validate(json.loads(answer), metadata.schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def groundedness(trace: Trace) -> float:
    """Share of the answer's content words that occur in the prompt; 1 for an answer without any."""
    return overlap(trace.answer, [message.content for message in trace.context])


class FactScores(NamedTuple):
    """Share of an answer's facts that its source supports, and share of the expected facts that it states."""

    precision: float
    recall: float


def score_facts(answer: str, expected: str, source: str) -> FactScores:
    """Compare an answer with the expected one, both derived from a source; expected facts outside it do not count.

    An answer without any fact has precision 1; recall is 1 if no fact is expected.
    """
    facts, targets = facts_of(answer), [fact for fact in facts_of(expected) if is_supported(fact, source)]
    supported = sum(is_supported(fact, source) for fact in facts)
    compared = facts and targets
    recall = match_sentences(rouge_similarities(facts, targets)).recall if compared else float(not targets)
    return FactScores(supported / len(facts) if facts else 1.0, recall)


def facts_of(answer: str) -> list[str]:
    """The sentences of an answer, without duplicates."""
    return list(dict.fromkeys(sentence for text in texts_of(answer) for sentence in sentences(text)))


def texts_of(answer: str) -> list[str]:
    """The strings of a JSON answer, in order; any other answer is one text."""
    try:
        value = json.loads(answer)
    except ValueError:
        return [answer]
    return list(_strings(value)) if isinstance(value, dict | list) else [answer]


def is_supported(fact: str, source: str) -> bool:
    """Whether every name and number of the fact and half of its content words occur in the source."""
    words = {word.lower() for word in _WORD.findall(source)}
    return names_and_numbers(fact) <= words and overlap(fact, [source]) >= GROUNDED


def names_and_numbers(fact: str) -> set[str]:
    """Numbers, and capitalised words that do not open the sentence, in lower case."""
    words = _WORD.findall(fact)
    return {word.lower() for word in words if word.isdigit()} | {
        word.lower() for word in words[1:] if word[0].isupper() and len(word) > 1
    }


def overlap(text: str, sources: Sequence[str]) -> float:
    """Share of a text's content words that occur in the sources; 1 for a text without any."""
    words = content_words([text])
    return len(words & content_words(sources)) / len(words) if words else 1.0


def content_words(texts: Sequence[str]) -> set[str]:
    """Numbers, and words of four letters or more, in lower case."""
    return {word.lower() for text in texts for word in _WORD.findall(text) if len(word) >= _LONG or word.isdigit()}


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)
