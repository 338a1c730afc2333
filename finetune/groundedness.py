"""Facts of a text, as far as words show them: which sentences stand in a source, and which say what others say.

Knows no model. A fact is a sentence; a JSON answer's are those of its strings. By words alone a fact that is told quite
differently counts as not told, and one that twists its words as told: the figures compare models, they prove nothing.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from localmem.evaluation.metrics.gold_memory import match_sentences, rouge_similarities
from localmem.text.parse import sentences

_WORD = re.compile(r"\w+")
_LONG = 4  # letters from which a word says something
GROUNDED = 0.5  # of a text's telling words, the share that must stand in its source


class Facts(NamedTuple):
    """The share of an answer's facts that stand in its source, and the share of what should be told that it tells."""

    precision: float
    recall: float


def facts(answer: str, right: str, source: str) -> Facts:
    """Of an answer against what is right, both made of a source. What is right but not in the source is not asked for.

    An answer without any fact has the precision 1; where nothing is to be told, recall is 1.
    """
    told, wanted = facts_of(answer), [fact for fact in facts_of(right) if stands_in(fact, source)]
    held = sum(stands_in(fact, source) for fact in told)
    recall = match_sentences(rouge_similarities(told, wanted)).recall if told and wanted else float(not wanted)
    return Facts(held / len(told) if told else 1.0, recall)


def facts_of(answer: str) -> list[str]:
    """Its sentences, each once."""
    return list(dict.fromkeys(sentence for text in texts_of(answer) for sentence in sentences(text)))


def texts_of(answer: str) -> list[str]:
    """The strings of a JSON answer, in their order; any other answer is one text."""
    try:
        value = json.loads(answer)
    except ValueError:
        return [answer]
    return list(_strings(value)) if isinstance(value, dict | list) else [answer]


def stands_in(fact: str, source: str) -> bool:
    """Every name and number of it, and half of its telling words."""
    known = {word.lower() for word in _WORD.findall(source)}
    return named(fact) <= known and share_in(fact, [source]) >= GROUNDED


def named(fact: str) -> set[str]:
    """Numbers, and words with a capital that do not open the sentence, in small letters."""
    words = _WORD.findall(fact)
    return {word.lower() for word in words if word.isdigit()} | {
        word.lower() for word in words[1:] if word[0].isupper() and len(word) > 1
    }


def share_in(text: str, sources: Sequence[str]) -> float:
    """Of the telling words of a text, the share that stand in the sources; 1 for a text without any."""
    said = telling([text])
    return len(said & telling(sources)) / len(said) if said else 1.0


def telling(texts: Sequence[str]) -> set[str]:
    """Numbers, and words of four letters or more, in small letters."""
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
