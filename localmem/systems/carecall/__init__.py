"""CareCall: sentences about the speakers, kept up to date by an operation for each pair of an old and a new one.

Keep Me Updated (Bae et al., Findings of EMNLP 2022). At session end the dialogue is summarised into sentences S
(section 4.2); for every pair (m, s) of a remembered and a new sentence a classifier says PASS, REPLACE, APPEND or
DELETE (section 4.3), and Algorithm 1 builds the next memory from them. The reply sees the sentences nearest to the
dialogue, k = 5 (appendix B.3). The variants of section 5.2.1 are settings: without memory, history accumulate (inputs
cut from the front to 2,048 tokens, appendix B.2), memory accumulate, memory update, gold memory.

Limits that the paper names, lifted here as settings:

- Both speakers are remembered, each in a memory of its own that only its own new sentences update (`roles`).
- A full memory loses its oldest sentences (`capacity`, a speaker).
- Cost: all pairs of a session are one batch; with `shortlist` only the memories nearest to each new sentence are
  classified, and the others count as APPEND.
- FUSION (`fuse`): each stored sentence that replaced something is shown to the backbone with what it replaced. Where
  something would be lost that still holds, the backbone's merged sentence is stored in its place. It is not classified
  against the rest of the memory again.
- Facts that depend on others: the summary's prompt has each sentence name its own reason, as appendix C.2 suggests.

Differs from the paper: backbone, classifier and encoder are whatever is injected, none is bound to Korean. The query
is the last turns of the dialogue, not all of it. A new sentence that is remembered word for word is a PASS without
asking (appendix A has annotators keep the old one of two that say the same; M' is a union of sets).
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from localmem.bank import Bank
from localmem.retrieval.base import Retriever
from localmem.systems.carecall.facts import KINDS, FactMemory, fact
from localmem.systems.carecall.fusion import Fuser
from localmem.systems.carecall.operations import Fate, remaining, replacements, update
from localmem.systems.carecall.variants import GoldMemory, HistoryAccumulate, WithoutMemory, read_gold
from localmem.text.base import Operation, PairClassifier
from localmem.text.summarize import Summarizer
from localmem.types import AddUnit, Change, RetireUnit, Role, Session, Turn, Unit

__all__ = ["CareCall", "Fuser", "GoldMemory", "HistoryAccumulate", "WithoutMemory", "read_gold"]

Units = Mapping[str, Unit]
Pair = tuple[Unit, Unit]


@dataclass(frozen=True, slots=True)
class _Side:
    """What is remembered about one speaker, and what a session says about them."""

    memory: Sequence[Unit]
    new: Sequence[Unit]


class CareCall(FactMemory):
    """Memory update; without a `classifier`, memory accumulate: every new sentence is appended.

    `summarize` asks a prompt with the input `about`. `roles` are the sides that are remembered. A `shortlist` or
    `capacity` of 0 sets no limit. `fallbacks` counts, by prompt, the answers that could not be used.
    """

    def __init__(
        self,
        *,
        retriever: Retriever,
        summarize: Summarizer,
        classifier: PairClassifier | None,
        k: int,
        query_turns: int,
        bank: Bank | None = None,
        roles: Sequence[Role] = ("user",),
        shortlist: int = 0,
        capacity: int = 0,
        fuse: Fuser | None = None,
    ) -> None:
        super().__init__(retriever=retriever, k=k, query_turns=query_turns, bank=bank)
        self._search = retriever.search
        self._summarize = summarize
        self._classifier = classifier
        self._roles = roles
        self._shortlist = shortlist
        self._capacity = capacity
        self._fuse = fuse

    @property
    def fallbacks(self) -> Counter[str]:
        return self._summarize.fallbacks + (self._fuse.fallbacks if self._fuse else Counter())

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        sides = self._sides(session)
        old = {m.id: m for side in sides for m in side.memory}
        new = {s.id: s for side in sides for s in side.new}
        fates = update(list(old), list(new), self._labels(sides))  # speakers share no pair, so none updates another's
        merged = self._merged(old, new, replacements(fates))
        time = session.turns[-1].time
        units = old | new | merged
        left = [units[name] for name in remaining(fates)]
        return [
            *(AddUnit(units[fate.sentence], time) for fate in fates if fate.step == "add"),
            *(RetireUnit(unit, by, why, time) for unit, by, why in _retired(fates, new, merged)),
            *(RetireUnit(unit.id, "carecall/capacity", "oldest", time) for unit in self._overflow(left)),
        ]

    def _sides(self, session: Session) -> list[_Side]:
        """Each remembered speaker who said something, with the session's sentences about them; one call for all."""
        turns = _named_apart(session.turns)
        names = {turn.role: turn.speaker for turn in turns}
        roles = [role for role in self._roles if role in names]
        found = self._summarize.each(turns, [{"about": names[role]} for role in roles])
        return [
            _Side(self.facts(role), [fact(session, role, names[role], n, text) for n, text in enumerate(sentences)])
            for role, sentences in zip(roles, found, strict=True)
        ]

    def _labels(self, sides: Sequence[_Side]) -> dict[tuple[str, str], Operation]:
        """The operation of each pair that is looked at: one batch for all speakers."""
        same = {(m.id, s.id) for side in sides for m, s in _identical(side)}
        labels: dict[tuple[str, str], Operation] = dict.fromkeys(same, "PASS")
        if self._classifier is None:
            return labels
        pairs = [(m, s) for side in sides for m, s in self._pairs(side) if (m.id, s.id) not in same]
        said = self._classifier.classify([(m.text, s.text) for m, s in pairs]) if pairs else []
        return labels | {(m.id, s.id): label.operation for (m, s), label in zip(pairs, said, strict=True)}

    def _pairs(self, side: _Side) -> list[Pair]:
        """All pairs, or those of each new sentence with the memories nearest to it."""
        if not side.new or not self._shortlist or len(side.memory) <= self._shortlist:
            return [(m, s) for m in side.memory for s in side.new]
        memory = {m.id: m for m in side.memory}
        nearest = self._nearest([s.text for s in side.new], memory)
        return [(memory[m], s) for s, found in zip(side.new, nearest, strict=True) for m in found]

    def _nearest(self, texts: Sequence[str], memory: Container[str]) -> list[list[str]]:
        """For each text the nearest of `memory`; the index holds other units too, so the search may have to widen."""
        width = self._shortlist
        while True:
            rows = self._search(texts, width)
            found = [[match.id for match in row if match.id in memory][: self._shortlist] for row in rows]
            if all(len(row) < width or len(ids) == self._shortlist for row, ids in zip(rows, found, strict=True)):
                return found
            width *= 2

    def _merged(self, old: Units, new: Units, taken: Mapping[str, Sequence[str]]) -> dict[str, Unit]:
        """The new units that are merged with what they replaced, because something would be lost."""
        if self._fuse is None:
            return {}
        replaced = [([old[m] for m in names], new[s]) for s, names in taken.items()]
        texts = self._fuse([([m.text for m in gone], s.text) for gone, s in replaced])
        return {s.id: _merge(gone, s, text) for (gone, s), text in zip(replaced, texts, strict=True) if text != s.text}

    def _overflow(self, left: Sequence[Unit]) -> list[Unit]:
        """The oldest sentences of each speaker beyond the capacity (first in, first out: the paper's limitations)."""
        sides = [KINDS[role] for role in self._roles] if self._capacity else []
        return [unit for kinds in sides for unit in [u for u in left if u.kind in kinds][: -self._capacity]]


def _identical(side: _Side) -> Iterator[Pair]:
    held = {m.text: m for m in side.memory}
    return ((held[s.text], s) for s in side.new if s.text in held)


def _merge(gone: Sequence[Unit], new: Unit, text: str) -> Unit:
    """The new unit with the merged text; it comes from the turns of all that went into it."""
    sources = dict.fromkeys(source for unit in (*gone, new) for source in unit.sources)
    return replace(new, text=text, key=text, sources=tuple(sources))


def _retired(fates: Sequence[Fate], new: Units, merged: Units) -> Iterator[tuple[str, str, str]]:
    """What is retired, by what, and why: by the sentence in its place, or by the one that holds what that said."""
    by_name = {fate.sentence: fate for fate in fates}
    for fate in (found for found in fates if found.step == "retire"):
        other = by_name[fate.other]
        if other.step == "add":
            yield fate.sentence, other.sentence, "FUSION" if other.sentence in merged else "REPLACE"
        else:
            by = other.other if other.because == "PASS" else "carecall/operation"
            yield fate.sentence, by, f"{fate.because}: {new[other.sentence].text}"


def _named_apart(turns: Sequence[Turn]) -> list[Turn]:
    """The turns, with the role beside a name that both sides bear."""
    users, others = ({turn.speaker for turn in turns if turn.role == role} for role in ("user", "assistant"))
    shared = users & others
    return [
        replace(turn, speaker=f"{turn.speaker} ({turn.role})") if turn.speaker in shared else turn for turn in turns
    ]
