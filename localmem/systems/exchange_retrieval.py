"""Exchange retrieval: the original exchanges are the memory; those nearest to what the user just said are recalled.

Turn-level memory as SeCom's baseline has it (SeCom, section 3: a user turn and its reply are one unit). Building it
takes no LLM call, so nothing is lost or invented, which is why it is the default for the smallest backbones. Knows
nothing of how the index searches.
"""

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated
from localmem.text.units import exchanges
from localmem.types import AddUnit, Change, Recall, Session


class ExchangeRetrieval(Memory):
    """One unit an exchange; `k` of them are recalled and shown in time order."""

    name = "exchange_retrieval"

    def __init__(self, *, retriever: Retriever, bank: Bank | None = None, k: int = 3) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._k = k

    def recall(self, session: Session) -> Recall:
        asked = session.turns[-1]
        found = self.search(asked.text, self._k, Scope(now=asked.time))
        hits = tuple(sorted(found, key=lambda hit: hit.unit.time))
        return Recall(text=dated(hit.unit for hit in hits), hits=hits)

    def end_session(self, session: Session) -> list[Change]:
        return [AddUnit(unit, unit.learned) for unit in exchanges(session)]
