"""Why a question recalls what it recalls: each view's ranking, the reranker, the floor, and the prompt as sent.

Reads a memory and a responder; changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.memory import Memory
from localmem.retrieval.base import Match, Scope
from localmem.retrieval.views import ViewRetriever, exchange_of
from localmem.server.page.memory_views import Row, row_of
from localmem.systems.evidence.evidence_memory import EvidenceMemory
from localmem.turns.pins import recall_with_pins
from localmem.types import Hit, Message, Recall, Session, Turn

_PLACES = 10  # of each view
VIEWS = {
    "exchange": "Vectors of whole exchanges",
    "sentence": "Vectors of sentences",
    "words": "Words (BM25)",
    "context": "Words with the exchange before",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """An exchange that was ranked: its unit with its probability to answer, its features, and whether it was shown."""

    row: Row
    features: Mapping[str, float]
    is_shown: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a question led to. `need` and `floor` are None for a system that has no floor."""

    question: str
    recall: Recall
    views: Mapping[str, Sequence[Row]]
    candidates: Sequence[Candidate]
    need: float | None
    floor: float | None
    prompt: Sequence[Message]

    @property
    def is_hidden(self) -> bool:
        """Whether the floor kept everything from the model."""
        return self.need is not None and self.floor is not None and self.need < self.floor


def explain(agent: Conversation, question: str, now: datetime) -> Explanation:
    """What would be recalled if the user said this now, and how it came about."""
    memory = agent.memory
    turn = Turn("why.0", "user", agent.responder.speakers.user, question, now)
    session = Session("why", (turn,))
    recall = recall_with_pins(memory, session)
    prompt = agent.responder.prepare(session, recall=recall).prompt
    recalled = {exchange_of(hit.unit.id) for hit in recall.hits}
    return Explanation(
        question=question,
        recall=recall,
        views=_views(memory, question, Scope(now=now)),
        candidates=_candidates(memory, question, now, recalled),
        need=memory.probability_of_need(question) if isinstance(memory, EvidenceMemory) else None,
        floor=memory.floor if isinstance(memory, EvidenceMemory) else None,
        prompt=prompt.messages,
    )


def _views(memory: Memory, question: str, scope: Scope) -> dict[str, list[Row]]:
    if not memory.keeps_units:
        return {}
    index = memory.index
    if isinstance(index, ViewRetriever):
        rankings = index.search_views(question, _PLACES, scope)
        return {VIEWS[name]: _rows(matches, memory.bank) for name, matches in rankings.items() if name in VIEWS}
    return {"Search": _rows(index.search([question], _PLACES, scope)[0], memory.bank)}


def _rows(matches: Sequence[Match], bank: Bank) -> list[Row]:
    rows: dict[str, Row] = {}
    for match in matches:
        if bank.is_live(match.id):
            rows.setdefault(match.id, row_of(bank.units[match.id], bank, score=match.score))
    return list(rows.values())[:_PLACES]


def _candidates(memory: Memory, question: str, now: datetime, recalled: set[str]) -> list[Candidate]:
    bank = memory.bank
    features: dict[str, Mapping[str, float]] = {}
    if isinstance(memory, EvidenceMemory):
        described = memory.describe_candidates(question)
        features = {exchange_of(units[0].id): values for units, values in described}
    hits: list[Hit] = memory.search(question, 2 * _PLACES, Scope(now=now))
    return [
        Candidate(
            row_of(bank.units.get(hit.unit.id, hit.unit), bank, score=float(hit.score)),
            features.get(exchange_of(hit.unit.id), {}),
            exchange_of(hit.unit.id) in recalled,
        )
        for hit in hits
    ]
