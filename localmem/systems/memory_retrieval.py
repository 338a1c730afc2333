"""Memory retrieval: sessions become memory sentences; those nearest to the dialogue are recalled.

The "memory retrieval" baseline of Theanine (section 4.1 and appendix: top k = 6 sentences for the current dialogue, the
number its baselines get to match Theanine's). Nothing is updated or removed; the same baseline with memory update is
CareCall with that k (configs/systems/memory_retrieval/updated.yaml). Knows nothing of how sentences are made or
searched.
"""

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated
from localmem.text.summarize import Summarizer
from localmem.types import AddUnit, Change, Recall, Session, Unit


class MemoryRetrieval(Memory):
    """One unit a sentence; the `k` nearest to the user's last turn are recalled and shown in time order."""

    name = "memory_retrieval"

    def __init__(self, *, retriever: Retriever, summarize: Summarizer, bank: Bank | None = None, k: int = 6) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._summarize = summarize
        self._k = k

    def recall(self, session: Session) -> Recall:
        asked = session.turns[-1]
        found = self.search(asked.text, self._k, Scope(now=asked.time))
        hits = tuple(sorted(found, key=lambda hit: hit.unit.time))
        return Recall(text=dated(hit.unit for hit in hits), hits=hits)

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        last = session.turns[-1].time
        return [AddUnit(unit, last) for unit in self._units(session)]

    def _units(self, session: Session) -> list[Unit]:
        known = {unit.key for unit in self.bank.live()}  # an identical sentence is no new memory
        return [
            Unit(
                id=f"{session.id}/m{number}",
                text=sentence,
                key=sentence,
                kind="sentence",
                speaker="",
                session=session.id,
                sources=tuple(turn.id for turn in session.turns),
                time=session.turns[-1].time,
                learned=session.turns[-1].time,
            )
            for number, sentence in enumerate(self._summarize(session.turns))
            if sentence not in known
        ]
