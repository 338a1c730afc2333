"""EvidenceMemory: what was said, word for word, found from several sides and kept current. Asks no LLM.

- A turn is a unit as soon as it is logged, unless it tells nothing: questions to the memory, thanks, denials and what
  only repeats a memory stay in the log alone.
- A question's exchanges are those that a search from several sides proposes, ordered by a reranker, if there is one.
  Below the relevance floor nothing is shown; above it, as much as the budget of tokens holds, in order of time.
- A later statement that replaces an earlier one is linked to it, and the earlier one is shown only when the past is
  asked for.
"""

from collections.abc import Iterable, Sequence, Set

from pydantic import Field, NonNegativeFloat, PositiveInt

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.retrieval.base import Scope
from localmem.retrieval.views import SIDE_MARK, exchange_of
from localmem.systems import Options, Parts
from localmem.systems.evidence.units import STATEMENT, Place, is_new, places, turn_units
from localmem.text.dialogue import add_units, by_time, dated_lines, recall_hits
from localmem.text.passages import estimate_tokens
from localmem.text.utterances import asks_about_past
from localmem.types import Change, Hit, Recall, Session, Unit

_EARLIER = 5  # units that an imported reply is compared with, to see whether it says more than they do
SUPERSEDES = "supersedes"  # the relation of a statement to one that it replaces
_SHORT_QUERY = 4  # words; a shorter question is searched for together with the user's turn before it


class EvidenceOptions(Options):
    """What is looked at and shown; the values are explained in configs/systems/evidence.yaml."""

    tokens: PositiveInt
    candidates: PositiveInt
    reranker: str | None
    floor: NonNegativeFloat = Field(le=1)


class EvidenceMemory(Memory):
    """One unit a turn, or a passage of a long turn."""

    name = "evidence"

    def __init__(self, parts: Parts, options: EvidenceOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=parts.new_retriever())
        self._options = options
        self._reranker = parts.wrap(parts.load_reranker(options.reranker)) if options.reranker else None

    # -- learning ------------------------------------------------------------------------------------------------------

    def observe_turn(self, session: Session, recall: Recall | None = None) -> list[Change]:
        *earlier, place = places(session)
        texts = [hit.unit.text for hit in (recall.hits if recall else ())]
        texts += [other.turn.text for other in earlier]
        return add_units(turn_units(session.id, place)) if is_new(place, texts) else []

    def end_session(self, session: Session) -> list[Change]:
        """Adds the turns that were not observed one by one: those of an imported or interrupted session."""
        missing = [place for place in places(session) if f"{place.unit_prefix}0" not in self.bank.units]
        replies = [place for place in missing if place.turn.role == "assistant"]
        recalled = dict(zip((place.turn.id for place in replies), self._nearest_texts(replies), strict=True))
        position = {turn.id: number for number, turn in enumerate(session.turns)}
        changes: list[Change] = []
        for place in missing:
            before = [turn.text for turn in session.turns[: position[place.turn.id]]]
            if is_new(place, [*recalled.get(place.turn.id, ()), *before]):
                changes += add_units(turn_units(session.id, place))
        return changes

    def _nearest_texts(self, replies: Sequence[Place]) -> list[list[str]]:
        """For each reply the texts that its question would have recalled."""
        results = self.index.search([place.opening.text for place in replies], _EARLIER) if replies else []
        return [[unit.text for match in matches for unit in self._exchange(match.id)] for matches in results]

    # -- recalling -----------------------------------------------------------------------------------------------------

    def recall(self, session: Session) -> Recall:
        query = session.turns[-1]
        present = {turn.id for turn in session.turns}
        exchanges = self._rank(_question(session), self._options.candidates, Scope(now=query.time), present)
        return recall_hits(by_time(self._fit(exchanges)))

    def search(self, text: str, k: int, scope: Scope | None = None) -> list[Hit]:
        """At most `k` units of different exchanges that are current and relevant, best first."""
        return [hits[0] for hits in self._rank(text, max(k, self._options.candidates), scope)[:k]]

    def _rank(self, text: str, count: int, scope: Scope | None, present: Set[str] = frozenset()) -> list[list[Hit]]:
        """Exchanges, best first, each as its units, best first. Without what `present` turns say."""
        exchanges = [
            units
            for hit in super().search(text, count, scope)
            if (units := [unit for unit in self._exchange(hit.unit.id) if present.isdisjoint(unit.sources)])
        ]
        scored = self._score(text, exchanges)
        relevant = [hits for hits in scored if hits[0].score >= self._options.floor]
        return self._current(text, relevant)

    def _exchange(self, unit_id: str) -> list[Unit]:
        """The live units of an exchange: this one, and the first passage of either side."""
        exchange = exchange_of(unit_id)
        ids = dict.fromkeys([unit_id, *(f"{exchange}{SIDE_MARK}{side}0" for side in "ua")])
        return [self.bank.units[name] for name in ids if self.bank.is_live(name)]

    def _score(self, text: str, exchanges: Sequence[Sequence[Unit]]) -> list[list[Hit]]:
        """The exchanges with the reranker's scores, best first; without one, in their order."""
        scores = [1 / (1 + rank) for rank in range(len(exchanges))]
        if self._reranker is not None:
            scores = self._reranker.score(text, [max((unit.key for unit in units), key=len) for units in exchanges])
        scored = [[Hit(unit, score) for unit in units] for units, score in zip(exchanges, scores, strict=True)]
        return sorted(scored, key=lambda hits: -hits[0].score)

    def _current(self, text: str, exchanges: list[list[Hit]]) -> list[list[Hit]]:
        """Without statements that another of these replaced, unless the text asks for what was."""
        if asks_about_past(text):
            return exchanges
        ids = {hit.unit.id for hits in exchanges for hit in hits}
        replaced = {link.target for link in self.bank.links if link.relation == SUPERSEDES and link.source in ids}
        current = ([hit for hit in hits if hit.unit.id not in replaced] for hits in exchanges)
        return [hits for hits in current if hits]

    def _fit(self, exchanges: Iterable[Sequence[Hit]]) -> list[Hit]:
        """The best exchanges within the budget of tokens: what matched, and the user's statement beside a reply."""
        remaining = self._options.tokens
        shown: list[Hit] = []
        for best, *others in exchanges:
            for hit in (best, *(hit for hit in others if hit.unit.kind == STATEMENT)):
                size = estimate_tokens(dated_lines([hit.unit]))
                if size <= remaining:
                    remaining -= size
                    shown.append(hit)
        return shown


def _question(session: Session) -> str:
    """What to search for: the last turn, after the user's turn before it where it is too short to say anything."""
    *earlier, last = [turn.text for turn in session.turns if turn.role == "user"]
    return last if len(last.split()) >= _SHORT_QUERY or not earlier else f"{earlier[-1]}\n{last}"
