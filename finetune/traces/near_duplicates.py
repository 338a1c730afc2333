"""Traces that say nearly what an earlier one says: question and answer both share most of their word triples with it.

The overlap of triples is computed exactly. Only pairs that share a rare triple are compared (prefix filtering: Bayardo
et al., "Scaling Up All Pairs Similarity Search", 2007). Triples that most traces hold are the prompt's own words and
count for nothing. Does not depend on any model.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil

from finetune.traces.trace import Trace
from localmem.text.parse import words

SIMILAR = 0.8  # Jaccard index of the triples, from which two texts are nearly the same
_SIZE = 3
_FEW = 8  # traces among which triples cannot be told from the prompt's words

Shingles = frozenset[tuple[str, ...]]


def find_near_duplicates(traces: Sequence[Trace]) -> set[int]:
    """The places of traces that nearly repeat an earlier remaining one."""
    questions = _without_common([_shingles(_question(trace)) for trace in traces])
    answers = [_shingles(trace.answer) for trace in traces]
    counts = Counter(shingle for own in questions for shingle in own)
    earlier: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    repeated: set[int] = set()
    for place, own in enumerate(questions):
        rare = sorted(own, key=lambda shingle: (counts[shingle], shingle))[: len(own) - ceil(SIMILAR * len(own)) + 1]
        candidates = {other for shingle in rare for other in earlier[shingle]}
        if any(_similar(own, questions[other]) and _similar(answers[place], answers[other]) for other in candidates):
            repeated.add(place)
            continue
        for shingle in rare:
            earlier[shingle].append(place)
    return repeated


def _question(trace: Trace) -> str:
    """What the prompt was rendered with, if that was recorded; else all that the teacher was shown."""
    inputs = trace.metadata.inputs
    return "\n".join(inputs.values()) if inputs else trace.context_text


def _shingles(text: str) -> Shingles:
    """Three words each; a text of fewer words is one."""
    tokens = words(text)
    return frozenset(zip(*(tokens[start:] for start in range(_SIZE)), strict=False)) or frozenset([tuple(tokens)])


def _without_common(texts: Sequence[Shingles]) -> list[Shingles]:
    counts = Counter(shingle for own in texts for shingle in own)
    if len(texts) < _FEW:
        return list(texts)
    return [frozenset(shingle for shingle in own if 2 * counts[shingle] <= len(texts)) or own for own in texts]


def _similar(first: Shingles, second: Shingles) -> bool:
    return len(first & second) >= SIMILAR * len(first | second)
