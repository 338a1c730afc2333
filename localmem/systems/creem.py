"""CREEM: every turn, insights are blended from memory and dialogue, and the memory is refined by them (2024).

What the paper says. For every turn and speaker (Algorithm 1, Table 2): an LLM writes the most salient question about
the speaker (section 2.2, appendix A.1); it retrieves the k = 5 nearest from past memories and the current dialogue
(section 3.2; Contriever); the LLM blends them into n = 2 insights and, in the same call, calls each New, Redundant or
Updated and names the memories to remove (section 2.3, appendix A.3); they are removed, the insights added, and the
reply sees the insights (appendix A.4). The first session's insights come straight from its statements, 5 of them
(appendix A.2). Ablations: no refinement; no blending before the reply, which then sees what past sessions left (Table
4). `operations` gives the share of New, Redundant and Updated (Table 5: 56, 25 and 20 % on MSC).

Here recall computes all of this and proposes the changes; observe commits them after the reply.

Differs from the paper:
- A session is a speaker's first when no memory of them exists; it is read at its end, in parts when it is long.
- An exchange that left no insight when it was answered (its reply was cut off or made by another program, or nothing is
  blended before the reply) is blended at the session's end, all at once: they do not see one another's insights.
- An insight that is remembered word for word is not added again.
- Insights of the session's earlier turns are searched too; Algorithm 1 (line 4) names those of past sessions.
- When no insight comes back, the reply sees the memories that were found.
- The dialogue's turns are searched with an index of the same kind as the memory's, made for the moment.
"""

import json
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pydantic import PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate, normalise
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, array, count_fallback, generate_usable, record, string
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.retrieval.base import Scope
from localmem.summaries.summarize import Summarizer
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import (
    by_time,
    day,
    distinguish_speakers,
    free_tokens,
    latest_turns,
    line,
    speaker_names,
    transcript,
)
from localmem.types import (
    AddUnit,
    Change,
    Completion,
    Exchange,
    Hit,
    JsonSchema,
    MarkUnit,
    Prompt,
    Recall,
    RetireUnit,
    Role,
    Session,
    Turn,
    Unit,
)

Operation = Literal["New", "Redundant", "Updated"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_QUESTION = "creem/question"
_BLEND = "creem/blend"


@dataclass(frozen=True, slots=True)
class Statements:
    """The search results about one speaker: memories, and turns of the dialogue."""

    speaker: str
    memories: Sequence[Unit]
    turns: Sequence[Turn]


@dataclass(frozen=True, slots=True)
class Insight:
    """A new memory, and the ids of those it replaces; without refinement it has no operation and replaces none."""

    text: str
    operation: Operation | None
    replaces: tuple[str, ...]


def ask_questions(
    llm: LLM, dialogues: Sequence[tuple[Sequence[Turn], str]], tokens: int, fallbacks: Counter[str]
) -> list[str]:
    """The most salient question about a speaker, for each (dialogue, speaker) (section 2.2, appendix A.1).

    All are asked at once. The last `tokens` of the dialogue are shown, fewer when the model's context is short. For an
    answer without a question the last turn is used, and that is counted.
    """
    bare = render(_QUESTION, dialogue="", speaker="")
    budget = min(tokens, max(free_tokens(llm, bare), llm.context_length // 4))
    recent = [transcript(latest_turns(turns, budget, llm.count_tokens)) for turns, _ in dialogues]
    prompts = [
        render(_QUESTION, dialogue=text, speaker=speaker) for text, (_, speaker) in zip(recent, dialogues, strict=True)
    ]
    questions = []
    for answer, (turns, _) in zip(generate_usable(llm, prompts, fallbacks), dialogues, strict=True):
        question = " ".join(answer.text.split()) if answer else ""
        if answer and not question:
            count_fallback(_QUESTION, "its answer is empty", fallbacks)
        questions.append(question or turns[-1].text)
    return questions


class Blender:
    """Asks for `count` insights of at most `longest` characters (section 2.3, appendix A.3).

    With `refine` each gets an operation. An unusable answer gives no insights. An insight that is labelled Redundant or
    Updated but names no memory, or New but names some, is New. Both are counted.
    """

    def __init__(self, llm: LLM, *, count: int, longest: int, refine: bool, fallbacks: Counter[str]) -> None:
        self._llm = llm
        self._count = count
        self._longest = longest
        self._refine = refine
        self._fallbacks = fallbacks

    def blend(self, batch: Sequence[Statements], gate: Gate) -> list[list[Insight]]:
        """The insights from each set of statements that the gate admits; all asked at once."""
        labels = [{f"M{n}": unit.id for n, unit in enumerate(statements.memories, 1)} for statements in batch]
        prompts = [self._prompt(statements, list(names)) for statements, names in zip(batch, labels, strict=True)]
        answers = generate_usable(self._llm, prompts, self._fallbacks)
        return [
            self._read(answer, names, prompt, gate) if answer else []
            for answer, names, prompt in zip(answers, labels, prompts, strict=True)
        ]

    def _prompt(self, statements: Statements, labels: Sequence[str]) -> Prompt:
        memories = [f"{label} ({day(m.time)}): {m.text}" for label, m in zip(labels, statements.memories, strict=True)]
        lines = "\n".join([*memories, *(f"Now, {line(turn)}" for turn in statements.turns)])
        inputs = {"speaker": statements.speaker, "count": self._count, "refine": self._refine}
        prompt = render(_BLEND, form=self._form(labels), statements=lines, **inputs)
        return replace(prompt, max_tokens=load(_BLEND).max_tokens * self._count)

    def _read(self, answer: Completion, labels: Mapping[str, str], prompt: Prompt, gate: Gate) -> list[Insight]:
        match json.loads(answer.text):
            case {"insights": list(items)}:
                insights = [insight for item in items if (insight := self._insight(item, labels))]
                admitted = gate.admit(prompt, [insight.text for insight in insights])
                last = {normalise(insight.text): insight for insight in insights}
                return [last[normalise(text)] for text in admitted]
        count_fallback(_BLEND, f"its answer {answer.text!r:.80} holds no insights", self._fallbacks)
        return []

    def _insight(self, item: object, labels: Mapping[str, str]) -> Insight | None:
        if not isinstance(item, dict) or not isinstance(item.get("insight"), str):
            return None
        text = " ".join(item["insight"].split())
        if not self._refine:
            return Insight(text, None, ())
        operation: Operation = next((name for name in OPERATIONS if name == item.get("operation")), "New")
        items = names if isinstance(names := item.get("remove"), list) else []
        replaced = tuple(dict.fromkeys(labels[name] for name in items if isinstance(name, str) and name in labels))
        if (operation == "New") == bool(replaced):
            reason = f"an insight labelled {operation} names {len(replaced)} memories to remove; it is New"
            count_fallback(_BLEND, reason, self._fallbacks)
            return Insight(text, "New", ())
        return Insight(text, operation, replaced)

    def _form(self, labels: Sequence[str]) -> JsonSchema:
        fields = {"insight": string(self._longest)}
        if self._refine and labels:
            fields |= {"operation": {"enum": list(OPERATIONS)}, "remove": array({"enum": list(labels)}, len(labels))}
        elif self._refine:
            fields |= {"operation": {"enum": ["New"]}}  # there is no memory that it could repeat or change
        return answer_format(insights={**array(record(**fields), self._count), "minItems": 1})


KINDS: Mapping[Role, str] = {"user": "insight", "assistant": "assistant_insight"}
_BySide = Mapping[Role, Sequence[Unit]]
_MARK = "operation/"  # followed by the operation's name


@dataclass(frozen=True, slots=True)
class _Side:
    """One speaker at one moment: what is remembered about them, and the dialogue so far."""

    role: Role
    name: str
    memory: Sequence[Unit]
    turns: Sequence[Turn]


@dataclass(frozen=True, slots=True)
class _Results:
    """The search results for one side: memories with their scores, and turns of the dialogue."""

    side: _Side
    hits: Sequence[Hit]
    turns: Sequence[Turn]


class CreemOptions(Options):
    """CREEM's settings.

    At most `k` statements are found, and `count` insights of at most `longest` characters blended; `first` insights
    come from a first session. The question is written from the last `tokens` of the dialogue. With `before_reply` a
    reply sees the insights of its turn.
    """

    k: PositiveInt
    count: PositiveInt
    first: PositiveInt
    refine: bool
    before_reply: bool
    speakers: Literal["user", "both"]
    longest: PositiveInt
    tokens: PositiveInt


class Creem(Memory):
    """One unit an insight about one speaker."""

    name = "creem"
    response_prompt = "creem/respond"

    def __init__(self, parts: Parts, options: CreemOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=parts.new_retriever())
        self._llm = llm = parts.llm
        shared = {"fallbacks": self.fallbacks}
        self._options = options
        self._roles: Sequence[Role] = ("user", "assistant") if options.speakers == "both" else ("user",)
        self._new_index = parts.new_index or parts.new_retriever
        self._summarize = Summarizer(llm, prompt="creem/first", limit=options.first, longest=options.longest, **shared)
        self._blender = Blender(llm, count=options.count, longest=options.longest, refine=options.refine, **shared)

    @property
    def operations(self) -> Counter[str]:
        """The number of insights in this bank that were New, Redundant and Updated; a first session's have none."""
        marks = (mark for _, mark in self.bank.marks)
        return Counter(mark.removeprefix(_MARK) for mark in marks if mark.startswith(_MARK))

    def recall(self, session: Session) -> Recall:
        bank = self.bank
        results = self._search(bank, _sides(self._memory(bank), session.turns))
        hits = tuple(hit for result in results for hit in result.hits)
        if not results or not self._options.before_reply:
            return Recall(text=_text([(result, []) for result in results]), hits=hits)
        gate = Gate(session.turns, self.fallbacks)
        blended = list(zip(results, self._blend(results, gate), strict=True))
        return Recall(_text(blended), hits, (*_changes(bank, session, blended), *gate.refusals))

    def observe(self, exchange: Exchange) -> list[Change]:
        """The changes that recall proposed, without repeated turns and units erased since."""
        bank = self.bank
        proposed = exchange.recall.proposed if exchange.recall else ()
        if any(isinstance(change, AddUnit) and change.unit.id in bank.units for change in proposed):
            return []
        return [change for change in proposed if not isinstance(change, RetireUnit) or bank.is_live(change.unit)]

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        bank = self.bank
        memory = self._memory(bank)
        results = self._search(bank, list(self._sides_to_blend(bank, memory, session)))
        gate = Gate(session.turns, self.fallbacks)
        blended = list(zip(results, self._blend(results, gate), strict=True))
        return [*self._first_insights(session, memory, gate), *_changes(bank, session, blended), *gate.refusals]

    def _memory(self, bank: Bank) -> dict[Role, list[Unit]]:
        """The units about each side, oldest first; without sides that have none."""
        memory: dict[Role, list[Unit]] = {role: [] for role in self._roles}
        for unit in bank.live():
            memory.get(_role(unit), []).append(unit)
        return {role: units for role, units in memory.items() if units}

    def _search(self, bank: Bank, sides: Sequence[_Side]) -> list[_Results]:
        """The contextual search (section 2.2) for each side; all questions are asked at once."""
        dialogues = [(side.turns, side.name) for side in sides]
        questions = ask_questions(self._llm, dialogues, self._options.tokens, self.fallbacks)
        return [self._results(bank, side, question) for side, question in zip(sides, questions, strict=True)]

    def _results(self, bank: Bank, side: _Side, question: str) -> _Results:
        """The `k` nearest of the side's memory and the dialogue together, each in time order."""
        turns = {f"t{number}": turn for number, turn in enumerate(side.turns) if turn.text.strip()}
        units = {f"m{number}": unit for number, unit in enumerate(self._nearest(bank, side, question))}
        turn_units = (
            Unit(name, turn.text, turn.text, "turn", turn.speaker, "", (turn.id,), turn.time, turn.time)
            for name, turn in turns.items()
        )
        index = self._new_index()
        index.add([*(replace(unit, id=name) for name, unit in units.items()), *turn_units])
        matches = index.search([question], self._options.k, Scope(now=side.turns[-1].time))[0]
        scores = {match.id: match.score for match in matches}
        hits = by_time(Hit(unit, scores[name]) for name, unit in units.items() if name in scores)
        return _Results(side, hits, [turn for name, turn in turns.items() if name in scores])

    def _nearest(self, bank: Bank, side: _Side, question: str) -> list[Unit]:
        """The side's `k` memories nearest to the question; the index holds both sides, so the search may widen."""
        ids, scope = {unit.id for unit in side.memory}, Scope(now=side.turns[-1].time)
        width = k = self._options.k
        while True:
            matches = self.index.search([question], width, scope)[0]
            units = [bank.units[match.id] for match in matches if match.id in ids]
            if len(units) >= k or len(matches) < width:
                return units[:k]
            width *= 2

    def _blend(self, results: Sequence[_Results], gate: Gate) -> list[list[Insight]]:
        return self._blender.blend(
            [Statements(result.side.name, [hit.unit for hit in result.hits], result.turns) for result in results], gate
        )

    def _sides_to_blend(self, bank: Bank, memory: _BySide, session: Session) -> Iterator[_Side]:
        """Each side at the end of each exchange that no reply's recall has blended."""
        blended = _blended_turns(bank, session) if self._options.before_reply and memory else set()
        end = 0
        for exchange in session.exchanges():
            end += len(exchange.turns())
            if exchange.user is None or exchange.user.id not in blended:
                yield from _sides(memory, session.turns[:end])

    def _first_insights(self, session: Session, memory: Container[Role], gate: Gate) -> Iterator[Change]:
        """Insights about sides without any memory, directly from the session (appendix A.2)."""
        turns = distinguish_speakers(session.turns)
        names = speaker_names(turns)
        new = [role for role in self._roles if role in names and role not in memory]
        inputs = [{"about": names[role], "count": str(self._options.first)} for role in new]
        for role, insights in zip(new, self._summarize.each(turns, inputs, gate) if new else [], strict=True):
            for number, text in enumerate(insights):
                unit = _unit(f"{session.id}/{role}/{number}", role, names[role], text, session, turns)
                yield AddUnit(unit, unit.learned)


def _blended_turns(bank: Bank, session: Session) -> Set[str]:
    """The turns whose insights the bank holds, retired or refused ones too."""
    names = (unit.id.removeprefix(f"{session.id}/") for unit in bank.units.values() if unit.session == session.id)
    refused = (refusal.sources[-1] for refusal in bank.refused if refusal.prompt == _BLEND and refusal.sources)
    return {*(name.rpartition("/")[0].rpartition("/")[0] for name in names), *refused}


def _sides(memory: _BySide, turns: Sequence[Turn]) -> list[_Side]:
    turns = distinguish_speakers(turns)
    names = speaker_names(turns)
    return [_Side(role, names.get(role) or units[-1].speaker or role, units, turns) for role, units in memory.items()]


def _changes(bank: Bank, session: Session, blended: Sequence[tuple[_Results, Sequence[Insight]]]) -> Iterator[Change]:
    """Each insight with what it replaces. No unit is removed twice, and no identical text added."""
    removed: set[str] = set()
    added: set[tuple[Role, str]] = set()
    for results, insights in blended:
        role, turn = results.side.role, results.side.turns[-1]
        existing = {normalise(unit.text) for unit in results.side.memory}
        for number, insight in enumerate(insights):
            replaced = [unit_id for unit_id in insight.replaces if unit_id not in removed and bank.is_live(unit_id)]
            if (role, insight.text) in added or (normalise(insight.text) in existing and not replaced):
                continue
            added.add((role, insight.text))
            removed |= {*replaced}
            unit = _blended_unit(f"{session.id}/{turn.id}/{role}/{number}", insight.text, session, results)
            yield AddUnit(unit, turn.time)
            if insight.operation:
                yield MarkUnit(unit.id, _MARK + insight.operation, 1.0, turn.time)
            yield from (RetireUnit(unit_id, unit.id, insight.operation or "", turn.time) for unit_id in replaced)


def _blended_unit(unit_id: str, text: str, session: Session, results: _Results) -> Unit:
    """An insight's sources are the turns found, the last turn, and the sources of the memories found."""
    turns = [*results.turns, results.side.turns[-1]]
    unit = _unit(unit_id, results.side.role, results.side.name, text, session, turns)
    older = (source for hit in results.hits for source in hit.unit.sources)
    return replace(unit, sources=tuple(dict.fromkeys((*unit.sources, *older))))


def _unit(unit_id: str, role: Role, speaker: str, text: str, session: Session, turns: Sequence[Turn]) -> Unit:
    sources = tuple(dict.fromkeys(turn.id for turn in turns))
    return Unit(unit_id, text, text, KINDS[role], speaker, session.id, sources, turns[-1].time, turns[-1].time)


def _role(unit: Unit) -> Role:
    """The side that a unit is about; units added by hand are about the user. Units once had one kind for both."""
    return "assistant" if unit.kind == KINDS["assistant"] or unit.id.split("/")[-2:-1] == ["assistant"] else "user"


def _text(blended: Sequence[tuple[_Results, Sequence[Insight]]]) -> str:
    """What the reply sees: each side's insights, or the memories found when there are none."""
    texts = ([item.text for item in insights] or [hit.unit.text for hit in result.hits] for result, insights in blended)
    sides = ([f"About {result.side.name}:", *lines] for (result, _), lines in zip(blended, texts, strict=True) if lines)
    return "\n\n".join(map("\n- ".join, sides))


SYSTEM = System(
    "creem",
    CreemOptions,
    Creem,
    "insights, each turn blended and refined",
    "for each reply, twice; at a first session's end",
)
