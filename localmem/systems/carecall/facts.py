"""Sentences about a speaker as units, and how they are recalled.

Knows nothing of how sentences are made or updated.
"""

from collections.abc import Mapping

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated, transcript
from localmem.types import Hit, Recall, Role, Session, Unit

# The kinds of units that are about one side; they keep the memories of two speakers with one name apart. What people
# add by hand, a note, is about the user.
KINDS: Mapping[Role, tuple[str, ...]] = {"user": ("user_fact", "note"), "assistant": ("assistant_fact",)}


def fact(session: Session, role: Role, speaker: str, number: int, text: str) -> Unit:
    """A sentence about the speaker of this role, learned in this session."""
    end = session.turns[-1].time
    return Unit(
        id=f"{session.id}/{role}{number}",
        text=text,
        key=text,
        kind=KINDS[role][0],
        speaker=speaker,
        session=session.id,
        sources=tuple(turn.id for turn in session.turns),
        time=end,
        learned=end,
    )


class FactMemory(Memory):
    """Recalls the `k` sentences nearest to the dialogue (section 4.1, appendix B.3), and shows them in time order.

    A `k` of 0 recalls all of them ("all memories" with memory update, Theanine's baseline).
    The query is the last `query_turns` turns, the newest first: an encoder drops the end of what it has no room for.
    """

    name = "carecall"

    def __init__(self, *, retriever: Retriever, k: int, query_turns: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._k = k
        self._query_turns = query_turns

    def recall(self, session: Session) -> Recall:
        hits = tuple(sorted(self._found(session), key=lambda hit: hit.unit.time))
        return Recall(text=dated(hit.unit for hit in hits), hits=hits)

    def _found(self, session: Session) -> list[Hit]:
        if not self._k:
            return [Hit(unit, 0.0) for unit in self.bank.live()]
        newest_first = transcript(reversed(session.turns[-self._query_turns :]))
        return self.search(newest_first, self._k, Scope(now=session.turns[-1].time))

    def facts(self, role: Role) -> list[Unit]:
        """What is remembered about this side now, oldest first."""
        return [unit for unit in self.bank.live() if unit.kind in KINDS[role]]
