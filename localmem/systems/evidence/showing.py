"""Showing: which units of the ranked exchanges are shown within a budget of tokens, and which of them in part.

Depends neither on how exchanges are found nor on how they are ranked.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from itertools import chain

from localmem.systems.evidence.superseding import read_sentence
from localmem.systems.evidence.units import ANSWER, STATEMENT
from localmem.text.clauses import CUT
from localmem.text.dialogue import dated_lines
from localmem.text.passages import estimate_tokens
from localmem.text.provenance import FOREIGN, origin_of
from localmem.times.annotate import without
from localmem.turns.utterances import split_sentences
from localmem.types import Hit

# Chosen on authors m, n, s, y and z: more statements of theirs are shown, and no fewer replies that are asked for.
_BEFORE_REPLY = 6  # exchanges whose statements come before the reply of the first, which is mostly advice
_PARTLY = 8  # exchanges of which one may be shown in part
_LEAST = 30  # tokens that are left, from which a turn is shown in part

_FOREIGN_SHARE = 3  # of the budget, for texts that are nobody's words


def fit_budget(
    exchanges: Sequence[Sequence[Hit]], question: str, today: date | None, budget: int, *, with_replies: bool
) -> list[Hit]:
    """The best units within a budget of tokens; of all but the first exchange the user's alone, or `with_replies` all.

    Replies are long, and what they tell is mostly advice: shown whole, they would crowd out half of the evidence.
    So would texts that are nobody's words, however many there are: they get a third.
    """
    remaining, foreign = budget, budget // _FOREIGN_SHARE
    selection: list[Hit] = []
    is_cut = False
    for rank, hit in _in_turn(exchanges, with_replies=with_replies):
        is_foreign = origin_of(hit.unit) in FOREIGN
        room = min(remaining, foreign) if is_foreign else remaining
        size = _size(hit, today)
        if size > room and rank < _PARTLY and not is_cut:
            hit = _cut(hit, question, today, room)
            size = _size(hit, today)
            is_cut = size <= room
        if size <= room:
            remaining -= size
            foreign -= size * is_foreign
            selection.append(hit)
    return selection


def _in_turn(exchanges: Sequence[Sequence[Hit]], *, with_replies: bool) -> list[tuple[int, Hit]]:
    """The units that may be shown, with the rank of their exchange, in the order in which they get room."""
    statements = [[hit for hit in hits if hit.unit.kind != ANSWER] for hits in exchanges]
    is_reply_first = bool(exchanges) and exchanges[0][0].unit.kind == ANSWER
    ordered = [
        (rank, hit)
        for rank, (hits, own) in enumerate(zip(exchanges, statements, strict=True))
        for hit in (hits if with_replies or (rank == 0 and is_reply_first) else own or hits)
    ]
    delayed = [(0, hit) for hit in chain(*exchanges[:1]) if (0, hit) not in ordered]
    place = next((number for number, (rank, _) in enumerate(ordered) if rank >= _BEFORE_REPLY), len(ordered))
    return [*ordered[:place], *delayed, *ordered[place:]]


def _cut(hit: Hit, question: str, today: date | None, room: int) -> Hit:
    """The hit with as many sentences of a statement as there is room for: those with the most words of the question.

    The hit itself, where no sentence of it would be left, or hardly any room is.
    """
    if room < _LEAST or hit.unit.kind != STATEMENT:
        return hit
    sentences = split_sentences(hit.unit.text.removeprefix(f"{hit.unit.speaker}: "))
    words = read_sentence(question).words
    shared = [len(words & read_sentence(sentence).words) for sentence in sentences]
    order = sorted(range(len(sentences)), key=lambda number: (shared[number], -number))
    unit = hit.unit
    for number in order[:-1]:
        unit = without(unit, sentences[number], CUT)
        if _size(part := replace(hit, unit=unit), today) <= room:
            return part
    return hit


def _size(hit: Hit, today: date | None) -> int:
    return estimate_tokens(dated_lines([hit.unit], today))
