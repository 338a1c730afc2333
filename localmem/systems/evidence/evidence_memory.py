"""EvidenceMemory: what was said, word for word, found from several sides and kept current. Asks no LLM.

- A turn is a unit as soon as it is logged, unless it tells nothing: questions to the memory, thanks, denials and what
  only repeats a memory stay in the log alone.
- A question's exchanges are those that a search from several sides proposes, ordered by a reranker, if there is one,
  by their place in the search and by what they share with the first. A request for help also finds what the user said
  about how to be helped. A request that is unlikely to need memory is shown none; any other as much as the budget of
  tokens holds, in order of time.
- A later statement that replaces an earlier one is linked to it, and the earlier one is shown only when the past is
  asked for.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from datetime import date
from itertools import chain, pairwise

from pydantic import Field, NonNegativeFloat, PositiveInt

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.retrieval.base import Scope
from localmem.retrieval.views import SIDE_MARK, exchange_of
from localmem.systems import Options, Parts
from localmem.systems.evidence.dependents import link_dependents
from localmem.systems.evidence.instructions import latest_instructions, lift_instructions
from localmem.systems.evidence.ranking import describe, probability
from localmem.systems.evidence.relevance import probability_of_need
from localmem.systems.evidence.showing import fit_budget
from localmem.systems.evidence.time_questions import lift_by_time, scopes_of_times, work_out_exchanges
from localmem.systems.evidence.units import ANSWER, STATEMENT, Place, first_unit, is_new, is_said_in, places, turn_units
from localmem.systems.evidence.updates import (
    Remembered,
    SentenceIndex,
    Updates,
    link_correction,
    link_late,
    link_updates,
    without_doubtful,
)
from localmem.text.dialogue import IN_SIGHT, add_units, by_time, dated_lines, recall_hits
from localmem.text.passages import estimate_tokens
from localmem.times.annotate import with_spans
from localmem.times.workings import write_workings
from localmem.turns.utterances import adds_nothing, asks_about_past, asks_about_replies, is_correction, is_small_talk
from localmem.types import AddLink, Change, Hit, Recall, Session, Unit, Working

_EARLIER = 5  # units that an imported reply is compared with, to see whether it says more than they do
_LONGER = 2  # times the length of a question, from which a turn tells more than that
_IN_PERIOD = 5  # exchanges that are also ranked because they were told in a time that the question names
_ABOUT_USER = 0.9  # the probability of needing memory from which a request asks about the user, not for help
_SHORT_QUERY = 17  # bytes of UTF-8; a shorter question is searched for together with the user's turn before it
# Though short, it says what it is about: "Who's my boss?", but not "and my mum?".
_COMPLETE = re.compile(r"(?!(?:and|or|but|so|what about|how about)\b).+ (?:my|our|the|your) \w", re.IGNORECASE)


class EvidenceOptions(Options):
    """What is looked at and shown; the values are explained in configs/systems/evidence.yaml."""

    tokens: PositiveInt
    candidates: PositiveInt
    reranker: str | None
    floor: NonNegativeFloat = Field(le=1)
    supersede: NonNegativeFloat = Field(le=1)
    work_out: bool


class EvidenceMemory(Memory):
    """One unit a turn, or a passage of a long turn."""

    name = "evidence"

    def __init__(self, parts: Parts, options: EvidenceOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=parts.new_retriever())
        self._options = options
        self._day_first = parts.day_first
        self.reranker = parts.wrap(parts.load_reranker(options.reranker)) if options.reranker else None

    @property
    def floor(self) -> float:
        """The probability of needing memory below which a request is shown none."""
        return self._options.floor

    def probability_of_need(self, question: str) -> float:
        """The probability that a question needs memory."""
        return probability_of_need(question, self.reranker)

    # -- learning ------------------------------------------------------------------------------------------------------

    def observe_turn(self, session: Session, recall: Recall | None = None) -> list[Change]:
        *earlier, place = places(session)
        today = place.turn.time.date()
        in_sight = (unit for other in earlier if (unit := self._find(f"{other.unit_prefix}0")))
        recalled = [hit.unit for hit in (recall.hits if recall else ())]
        lines = (dated_lines([unit], today) for unit in chain(recalled, in_sight))  # a reply may quote dates
        texts = chain(lines, (other.turn.text for other in earlier))
        units = turn_units(session.id, place) if is_new(place, texts, self.reranker) else []
        if units and isinstance(self.index, SentenceIndex):
            self.index.read_ahead(units)
        return self._learn(session, units)

    def end_session(self, session: Session) -> list[Change]:
        """Adds the turns that were not observed one by one: those of an imported or interrupted session."""
        missing = [place for place in places(session) if f"{place.unit_prefix}0" not in self.bank.units]
        replies = [place for place in missing if place.turn.role == "assistant"]
        recalled = dict(zip((place.turn.id for place in replies), self._nearest_texts(replies), strict=True))
        position = {turn.id: number for number, turn in enumerate(session.turns)}
        units: list[Unit] = []
        for place in missing:
            before = [turn.text for turn in session.turns[: position[place.turn.id]]]
            if is_new(place, [*recalled.get(place.turn.id, ()), *before], self.reranker):
                units += turn_units(session.id, place)
        return [*self._learn(session, units), *self._link_late(units)]

    def _learn(self, session: Session, units: Sequence[Unit]) -> list[Change]:
        """Adds units of a session, with links to the statements that they replace or correct.

        Times are resolved here and stored: only now are the turns at hand that settle them, and a recall just reads.
        """
        index, units = self.index, with_spans(units, session.turns, self._day_first)
        if not units or not isinstance(index, SentenceIndex):
            return add_units(units)
        links = link_updates(units, Remembered(self._find, index), self._options.supersede)
        new = {unit.id: unit for unit in units}
        for before, turn in pairwise(turn for turn in session.turns if turn.role == "user"):
            unit = new.get(first_unit(turn))
            corrected = unit and (new.get(first_unit(before)) or self._find(first_unit(before)))
            if unit and corrected and corrected.kind == STATEMENT and is_correction(turn.text):
                links = [link for link in links if link.link.target != corrected.id]
                links.append(link_correction(unit, corrected))
        return [*add_units(units), *links, *link_dependents(units, lambda: self._statements_before(units))]

    def _link_late(self, units: Sequence[Unit]) -> list[AddLink]:
        """Links from later statements, where a session is read after one that followed it; mostly there are none."""
        first = min((unit.time for unit in units if unit.kind == STATEMENT), default=None)
        if first is None or all(unit.time <= first for unit in self.bank.units.values()):
            return []
        if not isinstance(index := self.index, SentenceIndex):
            return []
        return link_late(units, Remembered(self._find, index), self._options.supersede)

    def _statements_before(self, units: Sequence[Unit]) -> Iterator[Unit]:
        """Live units, the last first, after those that are added now."""
        bank = self.bank
        latest = reversed(bank.units.values())  # type: ignore[call-overload]  # of a dict
        return chain(reversed(units), filter(lambda unit: bank.is_live(unit.id), latest))

    def _find(self, unit_id: str) -> Unit | None:
        return self.bank.units[unit_id] if self.bank.is_live(unit_id) else None

    def _nearest_texts(self, replies: Sequence[Place]) -> list[list[str]]:
        """For each reply the texts that its question would have recalled."""
        results = self.index.search([place.opening.text for place in replies], _EARLIER) if replies else []
        days = [place.turn.time.date() for place in replies]
        return [
            [dated_lines(self._exchange(match.id), today) for match in matches]
            for matches, today in zip(results, days, strict=True)
        ]

    # -- recalling -----------------------------------------------------------------------------------------------------

    def recall(self, session: Session) -> Recall:
        query = session.turns[-1]
        present = {turn.id for turn in session.turns[-IN_SIGHT - 1 :]}
        question, day = search_text(session), query.time.date()
        if is_small_talk(question) or self.probability_of_need(question) < self._options.floor:
            return recall_hits([])
        exchanges = self._rank(question, self._options.candidates, Scope(now=query.time), present)
        today = day if self._options.show_times else None
        workings = self._work_out(question, day, exchanges)
        lines = write_workings(workings)
        budget, with_replies = self._options.tokens - estimate_tokens(lines), asks_about_replies(question)
        hits = by_time(fit_budget(exchanges, question, today, budget, with_replies=with_replies))
        recall = recall_hits(hits, today)
        return replace(recall, text=f"{recall.text}\n{lines}", workings=tuple(workings)) if workings else recall

    def recall_shown(self, session: Session) -> Recall:
        """What `recall` returns: the dates stand there already."""
        return self.recall(session)

    def _work_out(self, question: str, day: date, exchanges: list[list[Hit]]) -> list[Working]:
        """What the exchanges allow to be worked out, but for what is doubtful; nothing where nothing ranks them."""
        if not self._options.work_out or self.reranker is None or asks_about_past(question):
            return []
        firm = [[replace(hit, unit=unit) for hit in hits if (unit := without_doubtful(hit.unit))] for hits in exchanges]
        return work_out_exchanges(question, day, list(filter(None, firm)), self.reranker.score)

    def search(self, text: str, k: int, scope: Scope | None = None) -> list[Hit]:
        """At most `k` units of different exchanges that are current and relevant, best first."""
        return [hits[0] for hits in self._rank(text, max(k, self._options.candidates), scope)[:k]]

    def _rank(self, text: str, count: int, scope: Scope | None, present: Set[str] = frozenset()) -> list[list[Hit]]:
        """Exchanges, best first, each as its units, best first. Without what `present` turns say."""
        exchanges = self._find_exchanges(text, count, scope, present)
        if scope is None or scope.now is None:
            return self._current(text, self._order(text, exchanges), present)
        for period in scopes_of_times(text, scope):
            exchanges = self._add(exchanges, self._find_exchanges(text, _IN_PERIOD, period, present))
        asks_for_help = self.probability_of_need(text) < _ABOUT_USER
        if asks_for_help and scope == Scope(now=scope.now):
            exchanges = self._add(exchanges, self._instructions(present))
        ordered = self._order(text, exchanges)
        lifted = lift_instructions(ordered) if asks_for_help else ordered
        return self._current(text, lift_by_time(text, scope.now.date(), lifted), present)

    def _instructions(self, present: Set[str]) -> list[list[Unit]]:
        """The exchanges in which the user last said how to be helped."""
        statements = (unit for unit in self._statements_before([]) if not is_said_in(unit, present))
        return [self._exchange(unit.id) for unit in latest_instructions(statements)]

    def _add(self, exchanges: list[list[Unit]], others: Sequence[list[Unit]]) -> list[list[Unit]]:
        """The exchanges, with others in the last places of those that are ranked."""
        place = max(0, self._options.candidates - len(others))
        first = {exchange_of(units[0].id) for units in exchanges[:place]}
        new = {exchange_of(units[0].id): units for units in others if exchange_of(units[0].id) not in first}
        remaining = [units for units in exchanges[place:] if exchange_of(units[0].id) not in new]
        return [*exchanges[:place], *new.values(), *remaining]

    def describe_candidates(self, text: str) -> list[tuple[list[Unit], dict[str, float]]]:
        """The exchanges that are ranked for a question, as found, with the features that the ranking is fitted on."""
        exchanges = self._find_exchanges(text, self._options.candidates)
        return list(zip(exchanges, self._features(text, exchanges), strict=True))

    def _find_exchanges(
        self, text: str, count: int, scope: Scope | None = None, present: Set[str] = frozenset()
    ) -> list[list[Unit]]:
        exchanges = [self._exchange(hit.unit.id) for hit in super().search(text, count, scope)]
        candidates = [[unit for unit in units if _may_answer(unit, text, present)] for units in exchanges]
        return [units for units in candidates if units]

    def _exchange(self, unit_id: str) -> list[Unit]:
        """The live units of an exchange: this one, and the first passage of the other side."""
        exchange, _, side = unit_id.rpartition(SIDE_MARK)
        ids = (unit_id, f"{exchange}{SIDE_MARK}{'u' if side.startswith('a') else 'a'}0")
        return [self.bank.units[name] for name in ids if self.bank.is_live(name)]

    def _order(self, text: str, exchanges: Sequence[Sequence[Unit]]) -> list[list[Hit]]:
        """The first candidates by the probability that they answer, and then the others as they were found."""
        candidates = exchanges[: self._options.candidates]
        likely = map(probability, self._features(text, candidates))
        ordered = [[Hit(unit, score) for unit in units] for units, score in zip(candidates, likely, strict=True)]
        ordered.sort(key=lambda hits: -hits[0].score)
        return ordered + [[Hit(unit, 0.0) for unit in units] for units in exchanges[len(candidates) :]]

    def _features(self, text: str, exchanges: Sequence[Sequence[Unit]]) -> list[dict[str, float]]:
        statements = ["\n".join(unit.text for unit in units if unit.kind != ANSWER) for units in exchanges]
        scores = self.reranker.score(text, list(map(_whole_key, exchanges))) if self.reranker else None
        return describe(statements, scores)

    def _current(self, text: str, exchanges: list[list[Hit]], present: Set[str]) -> list[list[Hit]]:
        """The exchanges as they stand now, unless the text asks for what was."""
        if asks_about_past(text):
            return exchanges
        return Updates(self.bank.links, self._find).apply(text, exchanges, self._exchange, present)


def _whole_key(units: Sequence[Unit]) -> str:
    """The key that holds the most of an exchange: a reply's holds the request, but not a later passage of it."""
    is_first = units[0].id.rpartition(SIDE_MARK)[2][1:] == "0"
    return max((unit.key for unit in units), key=len) if is_first else units[0].key


def _may_answer(unit: Unit, question: str, present: Set[str]) -> bool:
    """Whether a unit tells more than the question does, as an earlier asking of it does not, and is not in sight."""
    may_repeat = unit.kind == STATEMENT and len(unit.key) < _LONGER * len(question)  # a check of words is slow
    return not is_said_in(unit, present) and not (may_repeat and adds_nothing(unit.key, [question]))


def search_text(session: Session) -> str:
    """What to search for: the last turn, after the user's turn before it where it is too short to say anything."""
    *earlier, last = [turn.text for turn in session.turns if turn.role == "user"]
    is_whole = len(last.encode()) >= _SHORT_QUERY or _COMPLETE.match(last)
    return last if is_whole or not earlier else f"{earlier[-1]}\n{last}"
