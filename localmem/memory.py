"""Memory: the one contract of every system. A system reads its bank and proposes changes; it never applies them.

Does not depend on stores, agents or backends. Whoever holds a memory calls `recall`, `observe` and `end_session`,
persists the changes they return, and then calls `apply`.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.retrieval.base import Retriever, Scope
from localmem.types import AddUnit, Change, Exchange, Hide, Hit, Recall, Restore, RetireUnit, Session, Unit


class Memory(ABC):
    """One per user. Subclasses pass the bank and its index, if any, to this constructor.

    `name` is the system's name in settings; `response_prompt` names the prompt file of its replies. `fallbacks` counts,
    by prompt name, LLM answers that could not be used and inputs that did not fit. `show` edits what a recall shows on
    a day. The initial bank is indexed when the index is first needed, so that looking at a memory encodes nothing.
    """

    name: str
    response_prompt: str = "agent/respond"
    show: Callable[[Recall, date], Recall] | None = None

    def __init__(self, *, bank: Bank | None = None, retriever: Retriever | None = None) -> None:
        self.bank = bank or Bank()
        self.fallbacks: Counter[str] = Counter()
        self._retriever = retriever
        self._indexing = threading.Lock()
        self._indexed = False

    @abstractmethod
    def recall(self, session: Session) -> Recall:
        """What is worth knowing now, for the last turn of `session`. Changes nothing."""

    def recall_shown(self, session: Session) -> Recall:
        """What `recall` returns, as the model is shown it."""
        recall = self.recall(session)
        return self.show(recall, session.turns[-1].time.date()) if self.show else recall

    def observe(self, exchange: Exchange) -> list[Change]:
        """The changes after one reply; `exchange.recall` is what the reply saw."""
        return []

    def observe_turn(self, session: Session, recall: Recall | None = None) -> list[Change]:
        """The changes after the last turn of an open session was logged; `recall` is what a reply saw."""
        return []

    @abstractmethod
    def end_session(self, session: Session) -> list[Change]:
        """The changes that remember an ended session. The same session and bank give the same changes."""

    @property
    def keeps_units(self) -> bool:
        """Whether this memory has an index, so that single units can be searched for, and added by hand."""
        return self._retriever is not None

    @property
    def index(self) -> Retriever:
        """The index of the bank's live units. Raises BadSettings for a system without one."""
        if self._retriever is None:
            raise BadSettings(f"system {self.name!r} has no index; use a system that retrieves single units")
        if not self._indexed:
            with self._indexing:
                if not self._indexed:
                    self._retriever.add(list(self.bank.live()))
                    self._indexed = True
        return self._retriever

    @property
    def index_memory(self) -> int:
        """The approximate size of the index in bytes."""
        return self._retriever.memory if self._retriever is not None else 0

    def search(self, text: str, k: int, scope: Scope | None = None) -> list[Hit]:
        """At most `k` live units nearest to a text, best first; none for a system without an index."""
        matches = self.index.search([text], k, scope)[0] if self.keeps_units else []
        bank = self.bank
        return [Hit(bank.units[match.id], match.score) for match in matches if bank.is_live(match.id)]

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply committed changes to the bank, then to its index."""
        if any(isinstance(change, Hide | Restore) for change in changes):
            return self.catch_up(self.bank.apply(changes))
        indexed = self._replace_bank(self.bank.apply(changes))
        added = [change.unit for change in changes if isinstance(change, AddUnit) and self.bank.is_live(change.unit.id)]
        retired = [change.unit for change in changes if isinstance(change, RetireUnit)]
        return self._update_index(indexed, retired, added)

    def catch_up(self, bank: Bank) -> None:
        """Replace the bank by one in which any unit may have appeared or gone: another process changed it, perhaps."""
        previous = self.bank
        indexed = self._replace_bank(bank)
        before, now = ({unit.id: unit for unit in each.live()} for each in (previous, bank))
        retired = [name for name, unit in before.items() if now.get(name) != unit]  # one may have an erased one's id
        self._update_index(indexed, retired, [unit for name, unit in now.items() if before.get(name) != unit])

    def _replace_bank(self, bank: Bank) -> bool:
        """Whether the previous bank was indexed already, so that the index needs an update."""
        with self._indexing:
            self.bank = bank
            return self._indexed

    def _update_index(self, indexed: bool, retired: Sequence[str], added: Sequence[Unit]) -> None:
        if self.keeps_units and (indexed or added):
            self.index.remove(retired)
            self.index.add(added)
