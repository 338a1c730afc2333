"""Checks PASS by words: "the remembered sentence already says the new one" can be wrong in a way that words show.

A weak backbone answers PASS for every pair; by Algorithm 1 it then never remembers anything again. A PASS is not
believed where the new sentence has a name, a number or a date that the remembered one lacks. Where a classifier passes
everything it was asked about one new sentence, or in one session, its answer says nothing about the pair: the PASS then
stands only if the remembered sentence holds every word of the new one. Does not depend on a classifier or a bank.
"""

from collections.abc import Sequence

from localmem.classification import Operation
from localmem.grounding.sources import Sources
from localmem.text.parse import words

_TELLING = 3  # answers alike of which fewer may be right by chance

TextPair = tuple[str, str]


def doubtful_passes(pairs: Sequence[TextPair], operations: Sequence[Operation]) -> list[bool]:
    """For each (remembered, new) pair whether its operation is a PASS that words contradict."""
    says_nothing = _passes_all(operations)
    by_sentence: dict[str, list[Operation]] = {}
    for (_, new), operation in zip(pairs, operations, strict=True):
        by_sentence.setdefault(new, []).append(operation)
    return [
        operation == "PASS" and _adds(old, new, says_nothing or _passes_all(by_sentence[new]))
        for (old, new), operation in zip(pairs, operations, strict=True)
    ]


def _passes_all(operations: Sequence[Operation]) -> bool:
    return len(operations) >= _TELLING and set(operations) == {"PASS"}


def _adds(old: str, new: str, strictly: bool) -> bool:
    """Whether the new sentence says something more: a name, a number or a date; `strictly`, any word."""
    remembered = Sources(old)
    return remembered.missing(new) is not None or (strictly and not all(map(remembered.holds, words(new))))
