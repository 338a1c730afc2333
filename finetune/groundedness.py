"""Facts of a text, approximated by words: which sentences are supported by a source, and which repeat another text.

Does not depend on any model. A fact is a sentence; those of a JSON answer are in its strings. A paraphrase with other
words counts as missing, and a distortion with the same words as present: the figures compare models, they prove
nothing.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from localmem.evaluation.metrics.gold_memory import match_sentences, rouge_similarities
from localmem.text.parse import sentences

GROUNDED = 0.5  # share of a text's content words that must occur in its source

_WORD = re.compile(r"\w+")
_LONG = 4  # letters from which a word counts as a content word


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
