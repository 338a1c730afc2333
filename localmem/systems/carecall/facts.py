"""Sentences about a speaker as units, and how they are recalled.

Knows nothing of how sentences are made or updated.
"""

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.retrieval.base import Retriever
from localmem.text.dialogue import dated, transcript
from localmem.types import Hit, Recall, Role, Session, Unit


def kind_of(role: Role) -> str:
    """The kind of units that are about one side: what keeps the memories of two speakers with one name apart."""
    return f"{role}_fact"


def fact(session: Session, role: Role, speaker: str, number: int, text: str) -> Unit:
    """A sentence about the speaker of this role, learned in this session."""
    end = session.turns[-1].time
    return Unit(
        id=f"{session.id}/{role}{number}",
        text=text,
        key=text,
        kind=kind_of(role),
        speaker=speaker,
        session=session.id,
        sources=tuple(turn.id for turn in session.turns),
        time=end,
        learned=end,
    )


class FactMemory(Memory):
    """Recalls the `k` sentences nearest to the dialogue (section 4.1, appendix B.3), and shows them in time order.

    A `k` of 0 recalls all of them ("all memories" with memory update, Theanine's baseline).
    The query is the last `query_turns` turns: an encoder reads so many tokens and drops the end of what is longer.
    """

    name = "carecall"

    def __init__(self, *, retriever: Retriever, k: int, query_turns: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._search = retriever.search
        self._k = k
        self._query_turns = query_turns

    def recall(self, session: Session) -> Recall:
        hits = tuple(sorted(self._found(session), key=lambda hit: hit.unit.time))
        return Recall(text=dated(hit.unit for hit in hits), hits=hits)

    def _found(self, session: Session) -> list[Hit]:
        bank = self.bank
        if not self._k:
            return [Hit(unit, 0.0) for unit in bank.live()]
        (matches,) = self._search([transcript(session.turns[-self._query_turns :])], self._k)
        return [Hit(bank.units[match.id], match.score) for match in matches if bank.is_live(match.id)]

    def facts(self, role: Role) -> list[Unit]:
        """What is remembered about this side now, oldest first."""
        return [unit for unit in self.bank.live() if unit.kind == kind_of(role)]
