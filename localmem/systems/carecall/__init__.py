"""CareCall: sentences about the speakers, kept up to date by an operation for each pair of an old and a new one.

Keep Me Updated (Bae et al., Findings of EMNLP 2022). At session end the dialogue is summarised into sentences S
(section 4.2); for every pair (m, s) of a remembered and a new sentence a classifier says PASS, REPLACE, APPEND or
DELETE (section 4.3), and Algorithm 1 builds the next memory from them. The reply sees the sentences nearest to the
dialogue, k = 5 (appendix B.3). The variants of section 5.2.1 are settings: without memory, history accumulate (inputs
cut from the front to 2,048 tokens, appendix B.2), memory accumulate, memory update, gold memory.

Settings that go beyond limits named in the paper:

- Both speakers can be remembered, each in a separate memory that only new sentences about them update (`speakers`).
- A full memory loses its oldest sentences (`capacity`, for each speaker).
- Cost: all pairs of a session are one batch; with `shortlist` only the memories nearest to each new sentence are
  classified, and the others count as APPEND.
- FUSION (`fusion`): each stored sentence that replaced something is shown to the backbone with what it replaced. Where
  something that still holds would be lost, the backbone's merged sentence is stored instead. It is not classified
  again against the other memories.
- Facts that depend on others: the summary's prompt has each sentence state its reason, as appendix C.2 suggests.

Differs from the paper: backbone, classifier and encoder are injected; none is specific to Korean. The query is the last
turns of the dialogue, not all of it. A new sentence that is remembered word for word is a PASS without asking (appendix
A has annotators keep the old one of two that say the same; M' is a union of sets). A PASS that the words of the two
sentences contradict is an APPEND (`pass_check`): a weak backbone passes everything, and would learn nothing more.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt, TypeAdapter

from localmem.bank import Bank
from localmem.classification import LLMClassifier, Operation, PairClassifier
from localmem.errors import BadInput, BadSettings
from localmem.files import read_json
from localmem.grounding.gate import Gate, normalise
from localmem.llm.base import LLM
from localmem.llm.structured_output import (
    answer_format,
    boolean,
    count_fallback,
    generate_usable,
    string,
)
from localmem.memory import Memory
from localmem.prompts import render
from localmem.retrieval.base import Retriever, Scope
from localmem.summaries.summarize import Summarizer
from localmem.systems import Options, Parts, System
from localmem.systems.carecall.memory_update import Outcome, remaining, replacements, update
from localmem.systems.carecall.pass_check import doubtful_passes
from localmem.text.dialogue import (
    UTTERANCE,
    add_units,
    by_time,
    distinguish_speakers,
    history_budget,
    history_text,
    new_unit,
    newest_units,
    recall_hits,
    speaker_names,
    transcript,
    utterance_units,
)
from localmem.types import AddUnit, Change, Completion, Hit, Prompt, Recall, RefuseText, RetireUnit, Role, Session, Unit

# The kinds of units that are about one side; they keep the memories of two speakers with one name apart. What people
# add by hand, a note, is about the user.
KINDS: Mapping[Role, tuple[str, ...]] = {"user": ("user_fact", "note"), "assistant": ("assistant_fact",)}


def new_fact(session: Session, role: Role, speaker: str, number: int, text: str) -> Unit:
    """A sentence about the speaker of this role, learned in this session."""
    time = session.turns[-1].time
    return new_unit(session, f"{role}{number}", text, kind=KINDS[role][0], speaker=speaker, time=time)


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
        return recall_hits(by_time(self._hits(session)))

    def facts(self, role: Role) -> list[Unit]:
        """The live sentences about this side, oldest first."""
        return [unit for unit in self.bank.live() if unit.kind in KINDS[role]]

    def _hits(self, session: Session) -> list[Hit]:
        if not self._k:
            return [Hit(unit, 0.0) for unit in self.bank.live()]
        newest_first = transcript(reversed(session.turns[-self._query_turns :]))
        return self.search(newest_first, self._k, Scope(now=session.turns[-1].time))


class WithoutMemory(Memory):
    """The reply sees the current dialogue only."""

    name = "carecall"

    def recall(self, session: Session) -> Recall:
        return Recall()

    def end_session(self, session: Session) -> list[Change]:
        return []


class HistoryAccumulate(Memory):
    """All past sessions precede the dialogue, cut from the front to `tokens` (appendix B.2) and to what fits."""

    name = "carecall"

    def __init__(self, *, llm: LLM, tokens: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._tokens = tokens

    def recall(self, session: Session) -> Recall:
        past = [unit for unit in self.bank.live() if unit.kind == UTTERANCE]
        budget = min(self._tokens, history_budget(self._llm, session, self.response_prompt))
        fitting = newest_units(past, budget, self._llm.count_tokens)
        return Recall(text=history_text(fitting), hits=tuple(Hit(unit, 0.0) for unit in fitting))

    def end_session(self, session: Session) -> list[Change]:
        return add_units(utterance_units(session))


class GoldMemory(FactMemory):
    """After each session the memory is what `gold` holds for its id: the upper limit of memory management."""

    def __init__(
        self,
        *,
        retriever: Retriever,
        gold: Mapping[str, Sequence[str]],
        k: int,
        query_turns: int,
        bank: Bank | None = None,
    ) -> None:
        super().__init__(retriever=retriever, k=k, query_turns=query_turns, bank=bank)
        self._gold = gold

    def end_session(self, session: Session) -> list[Change]:
        """Raises BadInput for a session that has no gold memory."""
        if not session.turns:
            return []
        if session.id not in self._gold:
            raise BadInput(f"the gold memory has no session {session.id!r}; add its sentences, or [] for none")
        target = list(dict.fromkeys(self._gold[session.id]))
        existing = {unit.text: unit for unit in self.facts("user")}
        new = [text for text in target if text not in existing]
        speaker = next((turn.speaker for turn in session.turns if turn.role == "user"), "")
        time = session.turns[-1].time
        obsolete = [unit for text, unit in existing.items() if text not in target]
        return [
            *(AddUnit(new_fact(session, "user", speaker, number, text), time) for number, text in enumerate(new)),
            *(RetireUnit(unit.id, "carecall/gold", "not in the gold memory", time) for unit in obsolete),
        ]


def read_gold(path: Path) -> dict[str, list[str]]:
    """Gold memory from a JSON file {session id: [sentences]}. Raises BadInput for anything else."""
    return read_json(path, TypeAdapter(dict[str, list[str]]), "give JSON, {session id: [sentences]}")


Replaced = tuple[Sequence[str], str]  # the remembered sentences, and the new one that takes their place

_FUSE = "carecall/fuse"
_OPERATION = "carecall/operation"
_FUSED = answer_format(loses=boolean(), sentence=string(240))


def fuse(llm: LLM, replaced: Sequence[Replaced], gate: Gate) -> list[str]:
    """For each replacement the sentence to store: a merged one where something would be lost, else the new one.

    FUSION: Keep Me Updated, appendix C.2, names the case and leaves it out. All are asked about at once.
    """
    prompts = [render(_FUSE, form=_FUSED, memories=list(old), sentence=new) for old, new in replaced]
    answers = generate_usable(llm, prompts, gate.fallbacks)
    merged = [
        _merged_sentence(prompt, answer, gate) if answer else ""
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    return [sentence or new for sentence, (_, new) in zip(merged, replaced, strict=True)]


def _merged_sentence(prompt: Prompt, answer: Completion, gate: Gate) -> str:
    match json.loads(answer.text):
        case {"loses": False}:
            return ""
        case {"loses": True, "sentence": str(sentence)} if merged := gate.admit(prompt, [sentence]):
            return merged[0]
    count_fallback(_FUSE, f"its answer {answer.text!r:.80} holds no merged sentence", gate.fallbacks)
    return ""


Units = Mapping[str, Unit]
Pair = tuple[Unit, Unit]


@dataclass(frozen=True, slots=True)
class _Side:
    """What is remembered about one speaker, and the session's new sentences about them."""

    memory: Sequence[Unit]
    new: Sequence[Unit]


class CareCallOptions(Options):
    """Keep Me Updated's settings. A `shortlist` or `capacity` of 0 sets no limit."""

    variant: Literal["update", "accumulate", "history", "without", "gold"]
    speakers: Literal["user", "both"]
    k: NonNegativeInt
    query_turns: PositiveInt
    classifier: str | None
    shortlist: NonNegativeInt
    capacity: NonNegativeInt
    fusion: bool
    history_tokens: PositiveInt
    gold: str | None


class CareCall(FactMemory):
    """Memory update; without a classifier (variant accumulate) every new sentence is appended."""

    def __init__(self, parts: Parts, options: CareCallOptions, bank: Bank | None = None) -> None:
        super().__init__(retriever=parts.new_retriever(), k=options.k, query_turns=options.query_turns, bank=bank)
        self._options = options
        self._roles: Sequence[Role] = ("user", "assistant") if options.speakers == "both" else ("user",)
        self._summarize = Summarizer(parts.llm, prompt="carecall/summarize", fallbacks=self.fallbacks)
        self._classifier = _classifier(parts, options.classifier) if options.variant == "update" else None
        self._llm = parts.llm

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        gate = Gate(session.turns, self.fallbacks)
        sides = self._sides(session, gate)
        old = {m.id: m for side in sides for m in side.memory}
        new = {s.id: s for side in sides for s in side.new}
        outcomes = update(
            list(old), list(new), self._labels(sides)
        )  # speakers share no pair, so none updates another's
        merged = self._merge_replaced(old, new, replacements(outcomes), gate)
        time = session.turns[-1].time
        units = old | new | merged
        survivors = [units[name] for name in remaining(outcomes)]
        return [
            *(AddUnit(units[outcome.sentence], time) for outcome in outcomes if outcome.step == "add"),
            *(RetireUnit(unit, by, reason, time) for unit, by, reason in _retirements(outcomes, new, merged)),
            *(RetireUnit(unit.id, "carecall/capacity", "oldest", time) for unit in self._overflow(survivors)),
            *_record_drops(outcomes, old, new),
            *gate.refusals,
        ]

    def _sides(self, session: Session, gate: Gate) -> list[_Side]:
        """Each remembered speaker who spoke, with the session's sentences about them; one call for all."""
        turns = distinguish_speakers(session.turns)
        names = speaker_names(turns)
        roles = [role for role in self._roles if role in names]
        summaries = self._summarize.each(turns, [{"about": names[role]} for role in roles], gate)
        return [
            _Side(self.facts(role), [new_fact(session, role, names[role], n, text) for n, text in enumerate(sentences)])
            for role, sentences in zip(roles, summaries, strict=True)
        ]

    def _labels(self, sides: Sequence[_Side]) -> dict[tuple[str, str], Operation]:
        """The operation of each pair that is compared: one batch for all speakers."""
        identical = {(m.id, s.id) for side in sides for m, s in _identical(side)}
        labels: dict[tuple[str, str], Operation] = dict.fromkeys(identical, "PASS")
        if self._classifier is None:
            return labels
        pairs = [(m, s) for side in sides for m, s in self._pairs(side) if (m.id, s.id) not in identical]
        texts = [(m.text, s.text) for m, s in pairs]
        operations = [label.operation for label in self._classifier.classify(texts)] if pairs else []
        doubted = doubtful_passes(texts, operations)
        if any(doubted):
            reason = (
                f"{sum(doubted)} of {operations.count('PASS')} PASS are for sentences that say more; they are APPEND"
            )
            count_fallback(_OPERATION, reason, self.fallbacks)
        believed = ("APPEND" if doubt else operation for doubt, operation in zip(doubted, operations, strict=True))
        return labels | {(m.id, s.id): operation for (m, s), operation in zip(pairs, believed, strict=True)}

    def _pairs(self, side: _Side) -> list[Pair]:
        if not side.new or not self._options.shortlist or len(side.memory) <= self._options.shortlist:
            return [(m, s) for m in side.memory for s in side.new]
        memory = {m.id: m for m in side.memory}
        nearest = self._nearest([s.text for s in side.new], memory)
        return [(memory[m], s) for s, ids in zip(side.new, nearest, strict=True) for m in ids]

    def _nearest(self, texts: Sequence[str], memory: Container[str]) -> list[list[str]]:
        """For each text the nearest of `memory`; the index holds other units too, so the search may have to widen."""
        width = self._options.shortlist
        while True:
            rows = self.index.search(texts, width)
            nearest = [[match.id for match in row if match.id in memory][: self._options.shortlist] for row in rows]
            if all(
                len(row) < width or len(ids) == self._options.shortlist for row, ids in zip(rows, nearest, strict=True)
            ):
                return nearest
            width *= 2

    def _merge_replaced(
        self, old: Units, new: Units, replaced_by: Mapping[str, Sequence[str]], gate: Gate
    ) -> dict[str, Unit]:
        """The new units that are merged with what they replaced, because something would be lost."""
        if not self._options.fusion:
            return {}
        replaced = [([old[m] for m in names], new[s]) for s, names in replaced_by.items()]
        sentences = [([m.text for m in units], s.text) for units, s in replaced]
        texts = fuse(self._llm, sentences, gate)
        return {
            s.id: _merge(units, s, text) for (units, s), text in zip(replaced, texts, strict=True) if text != s.text
        }

    def _overflow(self, units: Sequence[Unit]) -> list[Unit]:
        """The oldest sentences of each speaker beyond the capacity (first in, first out: the paper's limitations)."""
        sides = [KINDS[role] for role in self._roles] if self._options.capacity else []
        return [unit for kinds in sides for unit in [u for u in units if u.kind in kinds][: -self._options.capacity]]


def _identical(side: _Side) -> Iterator[Pair]:
    by_text = {normalise(m.text): m for m in side.memory}
    return ((by_text[text], s) for s in side.new if (text := normalise(s.text)) in by_text)


def _merge(replaced: Sequence[Unit], new: Unit, text: str) -> Unit:
    """The new unit with the merged text; its sources are those of all merged units."""
    sources = dict.fromkeys(source for unit in (*replaced, new) for source in unit.sources)
    return replace(new, text=text, key=text, sources=tuple(sources))


def _retirements(outcomes: Sequence[Outcome], new: Units, merged: Units) -> Iterator[tuple[str, str, str]]:
    """Each retired unit, what retired it, and why: the sentence that replaced it, or one that says the same."""
    by_name = {outcome.sentence: outcome for outcome in outcomes}
    for outcome in (outcome for outcome in outcomes if outcome.step == "retire"):
        other = by_name[outcome.other]
        if other.step == "add":
            yield outcome.sentence, other.sentence, "FUSION" if other.sentence in merged else "REPLACE"
        else:
            by = other.other if other.because == "PASS" else "carecall/operation"
            yield outcome.sentence, by, f"{outcome.because}: {new[other.sentence].text}"


def _record_drops(outcomes: Sequence[Outcome], old: Units, new: Units) -> Iterator[RefuseText]:
    """The record of each new sentence that a PASS or DELETE kept out of the memory."""
    for outcome in outcomes:
        if outcome.step == "drop" and outcome.because in ("PASS", "DELETE"):
            unit, by = new[outcome.sentence], old[outcome.other].text
            yield RefuseText(unit.text, outcome.because, _OPERATION, unit.sources, unit.learned, by)


def _make(parts: Parts, options: CareCallOptions, bank: Bank | None) -> Memory:
    match options.variant:
        case "without":
            return WithoutMemory(bank=bank)
        case "history":
            return HistoryAccumulate(llm=parts.llm, tokens=options.history_tokens, bank=bank)
        case "gold":
            if options.gold is None:
                raise BadSettings("option 'gold' is not set; the gold variant needs a JSON file of gold memories")
            gold = read_gold(Path(options.gold))
            retriever = parts.new_retriever()
            return GoldMemory(retriever=retriever, gold=gold, k=options.k, query_turns=options.query_turns, bank=bank)
    return CareCall(parts, options, bank)


def _classifier(parts: Parts, name: str | None) -> PairClassifier:
    return parts.wrap(parts.load_classifier(name) if name else LLMClassifier(parts.llm))


SYSTEM = System(
    "carecall",
    CareCallOptions,
    _make,
    "sentences kept up to date by operations",
    "at each session's end, once and per pair",
)
