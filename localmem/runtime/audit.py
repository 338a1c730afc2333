"""Audit: junk, duplicates and contradictions that memories hold already, and what is left behind without a use.

What the gate and the default memory keep out today may be in a store from before. Findings are decided by words alone,
so an audit loads no model. `fix` retires junk and duplicates of a memory in one batch, which `localmem undo --batch`
takes back; vectors are derived data and dropped apart from it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, get_args

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.grounding.gate import find_fault, normalise
from localmem.prompts import instructions
from localmem.retrieval.base import passage_digest
from localmem.store import Store
from localmem.text.dialogue import line
from localmem.text.parse import sentences
from localmem.turns.utterances import adds_nothing, asks_only, is_denial, is_evidence, is_small_talk
from localmem.types import Change, Message, Prompt, RefusalReason, RetireUnit, SetNote, Turn, Unit

Problem = Literal[
    "machinery",
    "placeholder",
    "loop",
    "copied from the prompt",
    "unsupported",
    "no evidence",
    "duplicate",
    "contradiction",
    "no source",
]
PROBLEMS: tuple[Problem, ...] = get_args(Problem)
REPORTED_ONLY = ("contradiction", "no source")  # `fix` leaves them to a person
_BY_HAND = "note"  # the kind of units that people add: they have no source
_WRITTEN_NOTES = ("summary", "events", "portrait", "relationship")  # notes of a model's words

IsMachinery = Callable[[str], bool]
Track = Callable[[Sequence[tuple[str, str]]], Iterable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a unit, or of a sentence of a note. `item` is the unit's id or the note's name."""

    problem: Problem
    item: str
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BankAudit:
    """What one memory holds that it should not. `refused` counts the texts that the gate kept out, by reason.

    `cause` names the batch that fixed it, "" while nothing was fixed.
    """

    user: str
    system: str
    findings: tuple[Finding, ...]
    refused: Mapping[str, int]
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """The audits of memories, and the vectors of the store that no text needs: how many, and how many were dropped."""

    banks: tuple[BankAudit, ...]
    stale_vectors: int
    dropped_vectors: int = 0

    def counts(self) -> dict[str, int]:
        """How often each problem was found, without those that were not."""
        counts = Counter(finding.problem for bank in self.banks for finding in bank.findings)
        return {problem: counts[problem] for problem in PROBLEMS if counts[problem]}

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to be done: nothing was found, or all of it was fixed."""
        unresolved = any(
            not bank.cause or finding.problem in REPORTED_ONLY for bank in self.banks for finding in bank.findings
        )
        return self.stale_vectors == self.dropped_vectors and not unresolved


def find_contradictions(bank: Bank) -> Iterator[tuple[str, str]]:
    """(newer, older) of each live pair of which the newer "corrects" the older, so that both are shown as current.

    What "supersedes" another hides it, so such a pair is none.
    """
    for link in bank.links:
        if link.relation == "corrects" and bank.is_live(link.source) and bank.is_live(link.target):
            yield link.source, link.target


@dataclass(frozen=True)
class Auditor:
    """Audits the memories of one store. `is_machinery` knows the prompts of clients."""

    store: Store
    is_machinery: IsMachinery = lambda _text: False

    def run(
        self,
        users: Sequence[str] | None = None,
        system: str | None = None,
        fix_at: datetime | None = None,
        track: Track = iter,
    ) -> Audit:
        """Audit the memories of these users (default: all) of one system or all; fix them if a time is given for it.

        `track` may wrap the iteration over (user, system) with a progress bar. Raises BadInput for an unknown user,
        Conflict where another process changed a memory meanwhile.
        """
        everyone = self.store.users()
        names = everyone if users is None else users
        if unknown := next((name for name in names if name not in everyone), None):
            raise BadInput(f"there is no user {unknown!r} in {self.store.where}; name another or omit --user")
        banks = [(user, name) for user in names for name in self.store.systems(user) if system in (None, name)]
        audits = tuple(self._audit(user, name, fix_at) for user, name in track(banks))
        stale = self._stale_vectors()
        dropped = self.store.embeddings.drop(stale) if fix_at and stale else 0
        return Audit(audits, max(len(stale), dropped), dropped)

    def _audit(self, user: str, system: str, fix_at: datetime | None) -> BankAudit:
        journal = self.store.journal(user, system)
        bank = journal.bank()
        turns = self._turns(user)
        findings = tuple(_find(bank, turns, system, self.is_machinery))
        changes = fixes(bank, findings, fix_at) if fix_at else []
        cause = f"audit:{fix_at.isoformat()}" if fix_at and changes else ""
        if cause:
            journal.commit(cause, changes)
        return BankAudit(user, system, findings, dict(Counter(each.reason for each in bank.refused)), cause)

    def _turns(self, user: str) -> dict[str, Turn]:
        sessions = (self.store.session(user, info.id) for info in self.store.sessions(user))
        return {turn.id: turn for session in sessions for turn in session.turns}

    def _stale_vectors(self) -> set[str]:
        """The digests of vectors that neither a live unit nor a logged turn needs, of any user."""
        stale = self.store.embeddings.all_digests()
        if stale:
            stale.difference_update(map(passage_digest, self.store.unit_keys()))
            for user in self.store.users():
                stale.difference_update(passage_digest(turn.text) for turn in self._turns(user).values())
        return stale


def fixes(bank: Bank, findings: Sequence[Finding], time: datetime) -> list[Change]:
    """The changes that retire what was found and take bad sentences out of notes; not what is reported only."""
    fixable = [finding for finding in findings if finding.problem not in REPORTED_ONLY]
    units = {finding.item: finding for finding in fixable if finding.item in bank.units}
    notes: dict[str, set[str]] = {}
    for finding in fixable:
        if finding.item not in bank.units:
            notes.setdefault(finding.item, set()).add(finding.text)
    return [
        *(RetireUnit(unit, "audit", finding.problem, time) for unit, finding in units.items()),
        *(SetNote(name, _without(bank.notes[name], texts), time) for name, texts in notes.items()),
    ]


def _without(note: str, texts: set[str]) -> str:
    lines = (" ".join(text for text in sentences(line) if text not in texts) for line in note.splitlines())
    return "\n".join(line for line in lines if line)


# -- findings


def _find(bank: Bank, turns: Mapping[str, Turn], system: str, is_machinery: IsMachinery) -> Iterator[Finding]:
    written = "\n".join(filter(None, (instructions(group) for group in dict.fromkeys((system, "memory_retrieval")))))
    fault = partial(_fault, written)
    linked = {unit for link in bank.links for unit in (link.source, link.target)}
    originals: dict[tuple[str, str], str] = {}
    for unit in bank.live():
        sources = [turns[source] for source in unit.sources if source in turns]
        problem = _problem(unit, sources, is_machinery, fault)
        original = originals.setdefault((unit.speaker, normalise(unit.text)), unit.id)
        if problem is None and original != unit.id and unit.id not in linked:  # a linked repeat is an event of its own
            problem = "duplicate", original
        if problem is not None:
            yield Finding(problem[0], unit.id, unit.text, problem[1])
    for newer, older in find_contradictions(bank):
        yield Finding("contradiction", older, bank.units[older].text, newer)
    everything = list(turns.values())
    for name in bank.notes.keys() & set(_WRITTEN_NOTES):
        for text in sentences(bank.notes[name]):
            if problem := fault(everything, text):
                yield Finding(problem[0], name, text, problem[1])


Fault = tuple[Problem, str] | None
_PROBLEMS: Mapping[RefusalReason | None, Problem] = {
    "placeholder": "placeholder",
    "loop": "loop",
    "copied from the prompt": "copied from the prompt",
    "name": "unsupported",
    "number": "unsupported",
    "date": "unsupported",
}


def _problem(
    unit: Unit, sources: Sequence[Turn], is_machinery: IsMachinery, fault: Callable[[Sequence[Turn], str], Fault]
) -> Fault:
    if unit.kind == _BY_HAND and not unit.sources:
        return None
    if not sources:
        return "no source", ""
    if not _is_verbatim(unit, sources):
        return fault(sources, unit.text)
    user_turns = [turn for turn in sources if turn.role == "user"]
    if user_turns and all(is_machinery(turn.text) for turn in user_turns):
        return "machinery", ""
    return ("no evidence", "") if all(_tells_nothing(turn, user_turns) for turn in sources) else None


def _is_verbatim(unit: Unit, sources: Sequence[Turn]) -> bool:
    """Whether a unit holds what was said, word for word, or a passage of it."""
    passage = unit.text.partition(": ")[2]
    return any(line(turn) in unit.text or (passage and passage in turn.text) for turn in sources)


def _tells_nothing(turn: Turn, user_turns: Sequence[Turn]) -> bool:
    if turn.role == "user":
        return not is_evidence(turn.text)
    only_speaks = (is_denial, is_small_talk, asks_only)
    return any(check(turn.text) for check in only_speaks) or adds_nothing(turn.text, [each.text for each in user_turns])


def _fault(written: str, sources: Sequence[Turn], text: str) -> Fault:
    prompt = Prompt("audit", (Message("system", written),), inputs={"dialogue": "\n".join(map(line, sources))})
    reason, detail = find_fault(prompt, sources, text)
    return (_PROBLEMS[reason], detail) if reason in _PROBLEMS else None
