"""Utterance retrieval: the backbone sees those single utterances of the past that are nearest to what was just said.

The vanilla LLM with retrieval of Recursively Summarizing (section 4, baselines: BM25 or DPR over past utterances;
section 6.4: top 5). BM25 or dense is the retriever that is injected. Building it takes no LLM call. Knows nothing of
how the index searches.

Differs from the paper: the dense encoder is whatever is installed, not DPR; what is found is shown in time order.
"""

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated
from localmem.text.history import utterances
from localmem.types import AddUnit, Change, Recall, Session


class UtteranceRetrieval(Memory):
    """One unit a turn; `k` of them are recalled and shown in the order they were said."""

    name = "utterance_retrieval"

    def __init__(self, *, retriever: Retriever, k: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._k = k

    def recall(self, session: Session) -> Recall:
        asked = session.turns[-1]
        found = self.search(asked.text, self._k, Scope(now=asked.time))
        hits = tuple(sorted(found, key=lambda hit: hit.unit.time))
        return Recall(text=dated(hit.unit for hit in hits), hits=hits)

    def end_session(self, session: Session) -> list[Change]:
        return [AddUnit(unit, unit.learned) for unit in utterances(session)]
