"""Memory: the one contract of every system. A system reads its bank and proposes changes; it never makes one.

Knows nothing of stores, agents or backends: those call `recall`, `observe` and `end_session`, persist what they return,
and then call `apply`.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.retrieval.base import Retriever, Scope
from localmem.types import AddUnit, Change, Exchange, Hit, Recall, RetireUnit, Session, Unit


class Memory(ABC):
    """One per user. Subclasses take their parts as keyword arguments and pass the bank's index, if any, to this one.

    `name` is the system's name in settings; `response_prompt` names the prompt file of its replies. The bank that a
    memory begins with is indexed when the index is first needed, so that looking at a memory encodes nothing.
    """

    name: str
    response_prompt: str = "agent/respond"

    def __init__(self, *, bank: Bank | None = None, retriever: Retriever | None = None) -> None:
        self.bank = bank or Bank()
        self._retriever = retriever
        self._indexing = threading.Lock()
        self._indexed = False

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

    @property
    def index(self) -> Retriever:
        """The bank's index, with the bank in it. Raises BadSettings for a system that keeps none."""
        if self._retriever is None:
            raise BadSettings(f"system {self.name!r} keeps no index; take a system that finds single units")
        if not self._indexed:
            with self._indexing:
                if not self._indexed:
                    self._retriever.add(list(self.bank.live()))
                    self._indexed = True
        return self._retriever

    @property
    def index_memory(self) -> int:
        """Bytes that the index holds by now, about."""
        return self._retriever.memory if self._retriever is not None else 0

    def search(self, text: str, k: int, scope: Scope | None = None) -> list[Hit]:
        """At most `k` live units nearest to a text, best first; none for a system that keeps no index."""
        matches = self.index.search([text], k, scope)[0] if self.keeps_units else []
        bank = self.bank
        return [Hit(bank.units[match.id], match.score) for match in matches if bank.is_live(match.id)]

    def apply(self, changes: Sequence[Change]) -> None:
        """Take over changes that were committed: the bank first, then its index."""
        indexed = self._take_over(self.bank.apply(changes))
        added = [change.unit for change in changes if isinstance(change, AddUnit) and self.bank.is_live(change.unit.id)]
        retired = [change.unit for change in changes if isinstance(change, RetireUnit)]
        self._follow(indexed, retired, added)

    def catch_up(self, bank: Bank) -> None:
        """Take over a bank that another process has changed."""
        before = self.bank
        indexed = self._take_over(bank)
        gone = [unit.id for unit in before.live() if not bank.is_live(unit.id)]
        self._follow(indexed, gone, [unit for unit in bank.live() if not before.is_live(unit.id)])

    def _take_over(self, bank: Bank) -> bool:
        """Whether the index held the bank before, and so needs to be told; else it will take the new one as it is."""
        with self._indexing:
            self.bank = bank
            return self._indexed

    def _follow(self, indexed: bool, gone: Sequence[str], added: Sequence[Unit]) -> None:
        if self.keeps_units and (indexed or added):
            self.index.remove(gone)
            self.index.add(added)
