"""Memory: the one contract of every system. A system reads its bank and proposes changes; it never makes one.

Knows nothing of stores, agents or backends: those call `recall`, `observe` and `end_session`, persist what they return,
and then call `apply`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from localmem.bank import Bank
from localmem.retrieval.base import Retriever
from localmem.types import AddUnit, Change, Exchange, Hit, Recall, RetireUnit, Session


class Memory(ABC):
    """One per user. Subclasses take their parts as keyword arguments and pass the bank's index, if any, to this one.

    `name` is the system's name in settings; `response_prompt` names the prompt file of its replies.
    """

    name: ClassVar[str]
    response_prompt: ClassVar[str] = "agent/respond"

    def __init__(self, *, bank: Bank | None = None, retriever: Retriever | None = None) -> None:
        self.bank = bank or Bank()
        self._retriever = retriever
        if retriever is not None:
            retriever.add(list(self.bank.live()))

    @abstractmethod
    def recall(self, session: Session) -> Recall:
        """What is worth knowing now, for the last turn of `session`. Changes nothing."""

    def observe(self, exchange: Exchange) -> list[Change]:
        """One reply was given; `exchange.recall` says what it saw."""
        return []

    @abstractmethod
    def end_session(self, session: Session) -> list[Change]:
        """The conversation is over: the changes that remember it. The same session and bank give the same changes."""

    @property
    def keeps_units(self) -> bool:
        """Whether single units can be found in this memory, and added to it by hand."""
        return self._retriever is not None

    def search(self, text: str, k: int) -> list[Hit]:
        """At most `k` live units nearest to a text, best first; none for a system that keeps no index."""
        bank = self.bank
        matches = self._retriever.search([text], k)[0] if self._retriever is not None else []
        return [Hit(bank.units[match.id], match.score) for match in matches if bank.is_live(match.id)]

    def apply(self, changes: Sequence[Change]) -> None:
        """Take over changes that were committed: the bank first, then its index."""
        self.bank = self.bank.apply(changes)
        if self._retriever is None:
            return
        added = [change.unit for change in changes if isinstance(change, AddUnit) and self.bank.is_live(change.unit.id)]
        retired = [change.unit for change in changes if isinstance(change, RetireUnit)]
        self._retriever.remove(retired)
        self._retriever.add(added)

    def catch_up(self, bank: Bank) -> None:
        """Take over a bank that another process has changed."""
        before, self.bank = self.bank, bank
        if self._retriever is None:
            return
        self._retriever.remove([unit.id for unit in before.live() if not bank.is_live(unit.id)])
        self._retriever.add([unit for unit in bank.live() if not before.is_live(unit.id)])
