"""Filtering of traces: drops what a student should not learn and divides conversations into parts, counting both.

Where a human answer to a question is known, a reply must agree with it; otherwise its statements are compared with
what the teacher was shown. Facts of a text are approximated by words: a fact is a sentence, and those of a JSON answer
are in its strings. A paraphrase with other words counts as missing, and a distortion with the same words as present:
the figures compare models, they prove nothing. Does not depend on any model.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jsonschema

from finetune.traces.division import PARTS, Part, divide
from finetune.traces.near_duplicates import find_near_duplicates
from finetune.traces.support import find_unsupported
from finetune.traces.trace import Trace, question_id
from localmem.evaluation.metrics.replies import abstains, contains_answer
from localmem.evaluation.metrics.text import match_sentences, rouge, rouge_similarities
from localmem.text.parse import sentences

Reason = str
Score = float | None

GROUNDED = 0.5  # share of a text's content words that must occur in its source
RESPOND = "respond"
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
    part_of: Callable[[Trace], Part] | None = None,
    reject: Callable[[Trace], Reason | None] = lambda _: None,
    score: Callable[[Trace], Score] = lambda _: None,
) -> FilteredTraces:
    """The traces that are complete, well-formed, supported and new, each in its part.

    `reject` may give a reason to drop a trace that passes all other checks. Of several answers of one teacher to one
    prompt the one nearest to gold remains, else the one with the highest `score`, else the first. `part_of` gives the
    part; by default these traces alone are divided.
    """
    remaining: dict[str, Trace] = {}
    dropped: Counter[Reason] = Counter()
    for trace in traces:
        reason = "duplicate" if trace.id in remaining else find_problem(trace, stage) or reject(trace)
        if reason:
            dropped[reason] += 1
        else:
            remaining[trace.id] = trace
    best = best_samples(remaining.values(), score)
    near = find_near_duplicates(best)
    dropped["another sample is better"] = len(remaining) - len(best)
    dropped["near-duplicate"] = len(near)
    selected = [trace for place, trace in enumerate(best) if place not in near]
    part_of = part_of or divide(selected)
    parts: dict[Part, list[Trace]] = {part: [] for part in PARTS}
    for trace in selected:
        parts[part_of(trace)].append(trace)
    return FilteredTraces({part: tuple(members) for part, members in parts.items()}, dict(+dropped))


def best_samples(traces: Iterable[Trace], score: Callable[[Trace], Score] = lambda _: None) -> list[Trace]:
    """One of a teacher's answers to each prompt, in order; the first one where nothing tells them apart."""
    return [max(samples, key=lambda trace: _quality(trace, score)) for samples in _group_samples(traces)]


def pair_samples(
    traces: Iterable[Trace],
    stage: str,
    reject: Callable[[Trace], Reason | None] = lambda _: None,
    score: Callable[[Trace], Score] = lambda _: None,
) -> list[Trace]:
    """Each prompt's best answer of a teacher that can be learned, with the worst one as `rejected`, where they differ.

    An answer that would be dropped is worse than any other; ties teach nothing and are left out.
    """
    pairs = []
    for samples in _group_samples(traces):
        usable = {trace.id: find_problem(trace, stage) is None and reject(trace) is None for trace in samples}
        ranked = sorted(samples, key=lambda trace: (usable[trace.id], *_quality(trace, score)[:2]))  # used at once
        worst, best = ranked[0], ranked[-1]
        better = (usable[best.id], *_quality(best, score)[:2]) > (usable[worst.id], *_quality(worst, score)[:2])
        if usable[best.id] and better and worst.answer.strip():
            pairs.append(replace(best, metadata=replace(best.metadata, rejected=worst.answer)))
    return pairs


def _group_samples(traces: Iterable[Trace]) -> list[list[Trace]]:
    """The answers of each teacher to each prompt."""
    groups: dict[tuple[str, ...], list[Trace]] = {}
    for trace in traces:
        about = trace.metadata
        question = question_id(about.prompt, trace.context), about.teacher, about.adapter
        groups.setdefault(question, []).append(trace)
    return list(groups.values())


def _quality(trace: Trace, score: Callable[[Trace], Score]) -> tuple[float, float, int]:
    gold, rating = trace.metadata.gold, score(trace)
    near = rouge([trace.answer], [gold], ["rougeL"])["rougeL"][0] if gold else 0.0
    return near, rating if rating is not None else -1.0, -trace.metadata.sample


def find_problem(trace: Trace, stage: str) -> Reason | None:
    """Why a student should not learn this trace, or None."""
    if not trace.answer.strip():
        return "empty"
    if trace.metadata.finish == "length":
        return "cut short"
    if not is_valid(trace.answer, trace):
        return "wrong format"
    gold = trace.metadata.gold
    if gold in trace.metadata.options and trace.answer != gold:
        return "differs from the human answer"
    return _find_falsehood(trace, stage) if stage in TEXT_STAGES else None


def _find_falsehood(trace: Trace, stage: str) -> Reason | None:
    gold, inputs = trace.metadata.gold, trace.metadata.inputs
    if stage == RESPOND and gold is not None:
        return None if agrees_with(trace.answer, gold) else "differs from the human answer"
    if stage == RESPOND:
        # A question states nothing; anything else that the user says is a source, too.
        question = (sentences(trace.context[-1].content) or [""])[-1]
        source = trace.context_text.rstrip()
        source = source.removesuffix(question) if question.endswith("?") else source
        return "not supported by the prompt" if find_unsupported(trace.answer, source, question=question) else None
    source = "\n".join(inputs.values()) if inputs else trace.context_text
    if groundedness(trace) < GROUNDED:
        return "not grounded in the prompt"
    if any(find_unsupported(text, source) for text in texts_of(trace.answer)):
        return "not supported by the prompt"
    return None


def agrees_with(answer: str, gold: str) -> bool:
    """Whether a reply gives the human answer: its words in a row, or its names, numbers and most of its other words.

    A question without an answer ("" or a gold that admits not to know) needs a reply that admits it.
    """
    if not gold.strip() or abstains(gold):
        return abstains(answer)
    if contains_answer(answer, [gold]):
        return True
    words = {word.lower() for word in _WORD.findall(answer)}
    return not abstains(answer) and names_and_numbers(gold) <= words and overlap(gold, [answer]) >= GROUNDED


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
