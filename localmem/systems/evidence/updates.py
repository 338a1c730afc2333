"""Updates: links from a new statement to what it replaces or corrects, and exchanges as they stand now.

A link says which sentence of the earlier unit is replaced ("supersedes:2", by its number among the unit's texts), or
that all of it is ("supersedes"). A correction that makes no sense by itself ("sorry, I meant Thursday") "corrects", and
both are shown. Does not depend on how links are decided on (`superseding`), nor on how exchanges are ranked.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

from localmem.retrieval.views import SentenceMatch, exchange_of, index_texts
from localmem.systems.evidence.dependents import DOUBTS, SAID_BEFORE, refers_back
from localmem.systems.evidence.superseding import (
    Sentence,
    corrects_alone,
    describe,
    find_replaced,
    nearness,
    probability,
    read_sentence,
)
from localmem.systems.evidence.units import STATEMENT, is_said_in
from localmem.times import unit_parts
from localmem.times.annotate import mark_sentence, without
from localmem.turns.utterances import split_sentences
from localmem.types import AddLink, Hit, Link, Unit

SUPERSEDES = "supersedes"
CORRECTS = "corrects"
_NEAREST = 30  # sentences that a new one is compared with
_FAR = 0.15  # nearness below which the probability is high for a slot alone: that saves reading most of the sentences
OMITTED = "[…]"  # stands for a sentence that was replaced


@runtime_checkable
class SentenceIndex(Protocol):
    """An index that finds single sentences by their cosine, as ViewRetriever does."""

    def search_sentences(self, texts: Sequence[str], k: int) -> list[list[SentenceMatch]]:
        """For each text at most `k` sentences, nearest first."""

    def read_ahead(self, units: Sequence[Unit]) -> None:
        """Read units whose sentences are about to be searched for, and which are then added, in one go."""


class Remembered(NamedTuple):
    """Where earlier statements are looked up: live units by id, and the index of their sentences."""

    find: Callable[[str], Unit | None]
    sentences: SentenceIndex


# -- writing


class _Place(NamedTuple):
    """A sentence of a statement, by its number among the unit's texts."""

    unit: Unit
    number: int
    sentence: Sentence


def link_updates(units: Iterable[Unit], remembered: Remembered, threshold: float) -> list[AddLink]:
    """Links from these new statements to the sentences that they replace with at least this probability."""
    places = [place for place in _places(units) if place.sentence.may_replace]
    links: dict[tuple[str, str], AddLink] = {}
    for new, old, near in _compare(places, remembered, _precedes):
        if link := _replacement(new, old, near, threshold):
            links.setdefault((link.target, link.relation), AddLink(link, new.unit.learned))
    return list(links.values())


def link_late(units: Iterable[Unit], remembered: Remembered, threshold: float) -> list[AddLink]:
    """Links to these new statements from later ones that are remembered already: a session may be read late."""
    links: dict[tuple[str, str, str], AddLink] = {}
    for old, new, near in _compare(_places(units), remembered, _is_later):
        if link := _replacement(new, old, near, threshold):
            links.setdefault((link.source, link.target, link.relation), AddLink(link, new.unit.learned))
    return list(links.values())


def _places(units: Iterable[Unit]) -> list[_Place]:
    return [
        _Place(unit, number, read_sentence(text))
        for unit in units
        if unit.kind == STATEMENT
        for number, text in enumerate(index_texts(unit)[1:], start=1)
    ]


def _compare(
    places: Sequence[_Place], remembered: Remembered, fits: Callable[[Unit, Unit], bool]
) -> Iterator[tuple[_Place, _Place, float]]:
    """Each sentence with those of fitting remembered units that are not far, or may fill its slot, and how near."""
    results = (
        remembered.sentences.search_sentences([place.sentence.text for place in places], _NEAREST) if places else []
    )
    for place, matches in zip(places, results, strict=True):
        fitting = [
            (match, unit) for match in matches if (unit := remembered.find(match.unit)) and fits(unit, place.unit)
        ]
        for (match, unit), near in zip(fitting, nearness([match.score for match, _ in fitting]), strict=True):
            if near >= _FAR or place.sentence.slots:
                yield place, _Place(unit, match.number, read_sentence(index_texts(unit)[match.number])), near


def _replacement(new: _Place, old: _Place, near: float, threshold: float) -> Link | None:
    """The link from a sentence to one that it replaces with at least this probability."""
    if not (new.sentence.may_replace and old.sentence.words):
        return None
    gap, same_session = new.unit.time - old.unit.time, new.unit.session == old.unit.session
    likely = probability(describe(new.sentence, old.sentence, near, gap, same_session=same_session))
    relation = f"{SUPERSEDES}:{old.number}"
    return Link(new.unit.id, old.unit.id, relation, round(likely, 3)) if likely >= threshold else None


def _precedes(old: Unit, new: Unit) -> bool:
    return old.kind == STATEMENT and old.time <= new.time and exchange_of(old.id) != exchange_of(new.id)


def _is_later(new: Unit, old: Unit) -> bool:
    return new.kind == STATEMENT and new.time > old.time and exchange_of(old.id) != exchange_of(new.id)


def without_doubtful(unit: Unit) -> Unit | None:
    """A recalled unit without the sentences that are shown as said before a change and those behind that refer to them.

    None if no other is left.
    """
    if SAID_BEFORE not in unit.text:
        return unit
    is_behind = False
    for sentence in unit_parts.split_sentences(unit.text):
        is_behind = SAID_BEFORE in sentence or (is_behind and refers_back(sentence))
        if is_behind:
            unit = without(unit, sentence, OMITTED)
    return unit if index_texts(unit)[1:] else None  # one mark stands for all of several very short sentences


def link_correction(new: Unit, old: Unit) -> AddLink:
    """The link from a correction to the statement just before it."""
    correction = read_sentence(new.text)
    numbers = [
        number
        for number, text in enumerate(index_texts(old)[1:], start=1)
        if corrects_alone(correction, read_sentence(text))
    ]
    relation = f"{SUPERSEDES}:{numbers[-1]}" if numbers else CORRECTS
    return AddLink(Link(new.id, old.id, relation), new.learned)


def move_link(link: Link, old: Unit, new: Unit) -> Link | None:
    """The link to or from the unit that takes the place of another by an edit; None where it no longer applies.

    A sentence that was replaced keeps its link where it still stands. Who edits a doubtful statement has settled it.
    """
    if link.target != old.id:
        return replace(link, source=new.id)
    name, _, number = link.relation.partition(":")
    if name == DOUBTS:
        return None
    if name != SUPERSEDES or not number:
        return replace(link, target=new.id)
    before, now = index_texts(old), index_texts(new)
    sentence = before[int(number)] if int(number) < len(before) else None
    if sentence not in now:
        return None
    return replace(link, target=new.id, relation=f"{SUPERSEDES}:{now.index(sentence)}")


# -- reading


class Updates:
    """The links between live units, by the unit that was replaced or corrected."""

    def __init__(self, links: Iterable[Link], find: Callable[[str], Unit | None]) -> None:
        """`find` gives a live unit by its id."""
        self._find = find
        self._links: Mapping[str, list[Link]] = defaultdict(list)
        self._doubts: Mapping[str, set[str]] = defaultdict(set)
        for link in links:
            name = link.relation.partition(":")[0]
            if name in (SUPERSEDES, CORRECTS) and find(link.source):
                self._links[link.target].append(link)
            elif name == DOUBTS and find(link.source):
                self._doubts[link.target].add(link.relation)

    def apply(
        self, question: str, exchanges: Iterable[Sequence[Hit]], find: Callable[[str], list[Unit]], present: Set[str]
    ) -> list[list[Hit]]:
        """The exchanges as they stand now: what was replaced is cut, and what replaced it comes in before it.

        It comes in only if the question shares a word with what was cut: a turn tells of other things as well. `find`
        gives the units of the exchange of a unit; what `present` turns say is not brought in.
        """
        terms = read_sentence(question).words
        current: dict[str, list[Hit]] = {}
        for hits in exchanges:
            newer = [name for hit in hits if self._matches(terms, hit.unit) for name in self._newer(hit.unit.id)]
            for name in newer:
                units = [unit for unit in find(name) if not is_said_in(unit, present)]
                current.setdefault(exchange_of(name), self._cut(Hit(unit, hits[0].score) for unit in units))
            current.setdefault(exchange_of(hits[0].unit.id), self._cut(hits))
        return [hits for hits in current.values() if hits]

    def _matches(self, terms: Set[str], unit: Unit) -> bool:
        """Whether a question's words occur in what was replaced of a unit, or all of it was replaced or corrected."""
        relations = {link.relation for link in self._links.get(unit.id, ())}
        if not relations:
            return False
        if not relations.isdisjoint((SUPERSEDES, CORRECTS)):
            return True
        texts = index_texts(unit)
        return any(terms & read_sentence(texts[number]).words for number in _numbers(relations, texts))

    def _newer(self, unit_id: str) -> list[str]:
        """What replaced or corrected a unit, and what replaced that, the last first."""
        names: dict[str, None] = {}
        waiting = [unit_id]
        while waiting:
            sources = [link.source for link in self._links.get(waiting.pop(), ()) if link.source not in names]
            names |= dict.fromkeys(sources)
            waiting += sources
        return list(names)[::-1]

    def _cut(self, hits: Iterable[Hit]) -> list[Hit]:
        """The hits of an exchange without what was replaced, and without the reply to it, which repeats it."""
        hits = list(hits)
        if any(self._is_replaced(hit.unit) for hit in hits):
            hits = [hit for hit in hits if hit.unit.kind == STATEMENT]
        return [self._mark_doubtful(cut) for hit in hits if (cut := self._without_replaced(hit))]

    def _is_replaced(self, unit: Unit) -> bool:
        """Whether all of a unit was replaced, or something of each of its sentences."""
        relations = {link.relation for link in self._links.get(unit.id, ())}
        if not relations:
            return False
        texts = index_texts(unit)
        numbers = _numbers(relations, texts)
        return SUPERSEDES in relations or (bool(numbers) and numbers >= set(range(1, len(texts))))

    def _mark_doubtful(self, hit: Hit) -> Hit:
        """The hit, with the sentences said to be from before a change that rest on what changed."""
        relations = self._doubts.get(hit.unit.id)
        if not relations:
            return hit
        sentences = index_texts(hit.unit)
        unit = hit.unit
        for number in _numbers(relations, sentences):
            passage = sentences[number]  # it may end too early, behind "Dr."
            sentence = next((text for text in split_sentences(unit.text) if passage in text), passage)
            unit = unit if SAID_BEFORE in sentence else mark_sentence(unit, sentence, SAID_BEFORE)
        if DOUBTS in relations:
            unit = mark_sentence(unit, unit.text, SAID_BEFORE)
        return hit if unit is hit.unit else replace(hit, unit=unit)

    def _without_replaced(self, hit: Hit) -> Hit | None:
        """The hit without what was replaced of its sentences, with what corrects it; None if nothing is left of it."""
        links = self._links.get(hit.unit.id)
        if not links:
            return hit
        relations = {link.relation for link in links}
        sentences = index_texts(hit.unit)
        passages = [
            passage
            for number in _numbers(relations, sentences)
            for passage in self._find_replaced(hit.unit.id, number, sentences[number])
        ]
        if SUPERSEDES in relations or (passages and {*sentences[1:]} <= {*passages}):
            return None
        unit = hit.unit
        for passage in passages:
            unit = without(unit, passage, OMITTED)
        corrected_by = next((link.source for link in links if link.relation == CORRECTS), "")
        return replace(hit, unit=unit, corrected_by=corrected_by)

    def _find_replaced(self, unit_id: str, number: int, sentence: str) -> list[str]:
        """What was replaced of a unit's sentence: all of one that is doubtful as well."""
        if f"{DOUBTS}:{number}" in self._doubts.get(unit_id, ()):
            return [sentence]
        names = {link.source for link in self._links[unit_id] if link.relation == f"{SUPERSEDES}:{number}"}
        texts = [text for name in names if (unit := self._find(name)) for text in index_texts(unit)[1:]]
        return find_replaced(sentence, read_sentence(" ".join(texts)))


def _numbers(relations: Iterable[str], texts: Sequence[str]) -> set[int]:
    """The numbers of the texts that were replaced, without those that a unit edited long ago no longer has."""
    numbers = {int(number) for _, _, number in (relation.partition(":") for relation in relations) if number}
    return {number for number in numbers if number < len(texts)}
