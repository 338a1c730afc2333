"""The graph of a bank, kept beside it and grown with it, so that no recall pays for the whole bank.

Knows banks and graphs, no system. A bank is a value: the graph of one never changes, and readers of an older bank keep
the graph they took.
"""

from dataclasses import dataclass
from itertools import islice

from localmem.bank import Bank
from localmem.systems.theanine.graph import Graph


@dataclass(frozen=True, slots=True)
class Held:
    """A bank and the graph of its live units."""

    bank: Bank
    graph: Graph

    @classmethod
    def of(cls, bank: Bank) -> "Held":
        """The graph from all of the bank. Raises BadInput for links that no memory graph can have."""
        return cls(bank, Graph().grown(bank.live(), bank.links))

    def at(self, bank: Bank) -> "Held":
        """The same for another bank: grown by what is new where it goes on from this one, else made afresh."""
        if bank is self.bank:
            return self
        if not self._goes_on_in(bank):
            return Held.of(bank)
        new = islice(bank.units.values(), len(self.bank.units), None)
        links = bank.links[len(self.bank.links) :]
        return Held(bank, self.graph.grown((unit for unit in new if bank.is_live(unit.id)), links))

    def _goes_on_in(self, bank: Bank) -> bool:
        """Whether `bank` holds all that ours does, in the same order, and retires nothing else of it."""
        old = self.bank
        return (
            bank.retired == old.retired
            and bank.links[: len(old.links)] == old.links
            and list(islice(bank.units.values(), len(old.units))) == list(old.units.values())
        )
