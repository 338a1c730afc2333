"""CREEM: every turn, insights are blended from memory and dialogue, and the memory is refined by them (2024).

What the paper says. For every turn and speaker (Algorithm 1, Table 2): an LLM writes the most salient question about
the speaker (section 2.2, appendix A.1); it retrieves the k = 5 nearest from past memories and the current dialogue
(section 3.2; Contriever); the LLM blends them into n = 2 insights and, in the same call, calls each New, Redundant or
Updated and names the memories to remove (section 2.3, appendix A.3); they are removed, the insights added, and the
reply sees the insights (appendix A.4). The first session's insights come straight from its statements, 5 of them
(appendix A.2). Ablations: no refinement; no blending before the reply, which then sees what past sessions left (Table
4). `operations` gives the share of New, Redundant and Updated (Table 5: 56, 25 and 20 % on MSC).

Here recall works all of this out and proposes the changes; observe commits them once the reply was given.

Differs from the paper:
- The first session is known by its having no memory of the speaker; it is read at its end, in parts when it is long.
- An exchange that lacks a side was not replied to, and is blended at the session's end. So is every exchange without
  blending before the reply; all of them are then asked about at once and do not see one another's insights.
- An insight that is remembered word for word is not added again.
- Where no insight comes back, the reply sees the memories that were found.
- What the dialogue's turns are searched with is the memory's own kind of index, made for the moment.

Knows nothing of how things are searched; the backbone's part of it is in `blend`.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.systems.creem.blend import Blender, Insight, Questioner, Statements
from localmem.text.speakers import named_apart, names
from localmem.text.summarize import Summarizer
from localmem.types import AddUnit, Change, Exchange, Hit, MarkUnit, Recall, RetireUnit, Role, Session, Turn, Unit

__all__ = ["Creem"]

KIND = "insight"
_MARK = "operation/"  # and the operation's name: how an insight was judged


@dataclass(frozen=True, slots=True)
class _Side:
    """One speaker at one moment: what is remembered about them, and the dialogue so far."""

    role: Role
    name: str
    memory: Sequence[Unit]
    turns: Sequence[Turn]


@dataclass(frozen=True, slots=True)
class _Found:
    """What the search gave for one side: memories with their scores, and turns of the dialogue."""

    side: _Side
    hits: Sequence[Hit]
    turns: Sequence[Turn]

    def statements(self) -> Statements:
        return Statements(self.side.name, [hit.unit for hit in self.hits], self.turns)


class Creem(Memory):
    """One unit an insight about one speaker; `roles` are the sides that are remembered.

    `new_index` makes an empty index of the same kind as `retriever`. `summarize` asks a prompt with the inputs `about`
    and `count`; `first` is that count. At most `k` statements are found, `count` insights of at most `longest`
    characters blended, and the question is written from the last `tokens` of the dialogue. With `before_reply` a reply
    sees its own turn's insights. `fallbacks` counts, by prompt name, the answers that could not be used.
    """

    name = "creem"
    response_prompt = "creem/respond"

    def __init__(
        self,
        *,
        llm: LLM,
        retriever: Retriever,
        new_index: Callable[[], Retriever],
        summarize: Summarizer,
        k: int,
        count: int,
        first: int,
        longest: int,
        tokens: int,
        refine: bool = True,
        before_reply: bool = True,
        roles: Sequence[Role] = ("user", "assistant"),
        bank: Bank | None = None,
    ) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._new_index = new_index
        self._summarize = summarize
        self._k = k
        self._first = first
        self._before_reply = before_reply
        self._roles = roles
        self._own: Counter[str] = Counter()
        self._questioner = Questioner(llm, tokens=tokens, fallbacks=self._own)
        self._blender = Blender(llm, count=count, longest=longest, refine=refine, fallbacks=self._own)

    @property
    def fallbacks(self) -> Counter[str]:
        return self._own + self._summarize.fallbacks

    @property
    def operations(self) -> Counter[str]:
        """How many insights of this bank were New, Redundant and Updated; those of a first session are not judged."""
        marks = (mark for _, mark in self.bank.marks)
        return Counter(mark.removeprefix(_MARK) for mark in marks if mark.startswith(_MARK))

    def recall(self, session: Session) -> Recall:
        bank = self.bank
        found = self._search(bank, _sides(self._memory(bank), session.turns))
        hits = tuple(hit for one in found for hit in one.hits)
        if not found or not self._before_reply:
            return Recall(text=_text([(one, []) for one in found]), hits=hits)
        blended = list(zip(found, self._blend(found), strict=True))
        return Recall(text=_text(blended), hits=hits, proposed=tuple(_changes(bank, session, blended)))

    def observe(self, exchange: Exchange) -> list[Change]:
        """The changes that recall proposed, but for a turn that was answered before, and what was erased since."""
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
        found = self._search(bank, list(self._unseen(memory, session)))
        changes = _changes(bank, session, list(zip(found, self._blend(found), strict=True)))
        return [*self._first_insights(session, memory), *changes]

    # -- what is known, and what is found ---------------------------------------------------------------------------

    def _memory(self, bank: Bank) -> dict[Role, list[Unit]]:
        """What is remembered about each side, oldest first; no side of which nothing is."""
        memory: dict[Role, list[Unit]] = {role: [] for role in self._roles}
        for unit in bank.live():
            memory.get(_role(unit), []).append(unit)
        return {role: known for role, known in memory.items() if known}

    def _search(self, bank: Bank, sides: Sequence[_Side]) -> list[_Found]:
        """The contextual search (section 2.2) for each side; the questions are asked at once."""
        questions = self._questioner.ask([(side.turns, side.name) for side in sides])
        return [self._found(bank, side, question) for side, question in zip(sides, questions, strict=True)]

    def _found(self, bank: Bank, side: _Side, question: str) -> _Found:
        """The `k` nearest of the side's memory and the dialogue together, each in time order."""
        near = self._nearest(bank, side, question)
        said = {f"t{number}": turn for number, turn in enumerate(side.turns) if turn.text.strip()}
        held = {f"m{number}": unit for number, unit in enumerate(near)}
        index = self._new_index()
        index.add([replace(unit, id=name) for name, unit in held.items()])
        index.add([_statement(name, turn) for name, turn in said.items()])
        scores = {
            match.id: match.score for match in index.search([question], self._k, Scope(now=side.turns[-1].time))[0]
        }
        hits = [Hit(unit, scores[name]) for name, unit in held.items() if name in scores]
        turns = [turn for name, turn in said.items() if name in scores]
        return _Found(side, sorted(hits, key=lambda hit: hit.unit.time), turns)

    def _nearest(self, bank: Bank, side: _Side, question: str) -> list[Unit]:
        """The side's `k` memories nearest to the question; the index holds the other side's too, so it may widen."""
        ids, scope = {unit.id for unit in side.memory}, Scope(now=side.turns[-1].time)
        width = self._k
        while True:
            matches = self.index.search([question], width, scope)[0]
            found = [bank.units[match.id] for match in matches if match.id in ids]
            if len(found) >= self._k or len(matches) < width:
                return found[: self._k]
            width *= 2

    # -- insights ---------------------------------------------------------------------------------------------------

    def _blend(self, found: Sequence[_Found]) -> list[list[Insight]]:
        return self._blender.blend([one.statements() for one in found])

    def _unseen(self, memory: Mapping[Role, Sequence[Unit]], session: Session) -> Iterator[_Side]:
        """Each side at the end of each exchange that no reply's recall has blended."""
        heard = 0
        for exchange in session.exchanges():
            heard += len(exchange.turns())
            if not self._before_reply or exchange.user is None or exchange.reply is None:
                yield from _sides(memory, session.turns[:heard])

    def _first_insights(self, session: Session, remembered: Container[Role]) -> Iterator[Change]:
        """Insights about those of whom nothing is remembered yet, straight from the session (appendix A.2)."""
        turns = named_apart(session.turns)
        called = names(turns)
        new = [role for role in self._roles if role in called and role not in remembered]
        asked = [{"about": called[role], "count": str(self._first)} for role in new]
        for role, insights in zip(new, self._summarize.each(turns, asked) if new else [], strict=True):
            for number, text in enumerate(insights):
                unit_id = f"{session.id}/{role}/{number}"
                yield AddUnit(_unit(unit_id, called[role], text, session, turns), session.turns[-1].time)


def _sides(memory: Mapping[Role, Sequence[Unit]], turns: Sequence[Turn]) -> list[_Side]:
    """The speakers that something is remembered about, at this moment of the dialogue."""
    apart = named_apart(turns)
    called = names(apart)
    return [_Side(role, called.get(role) or known[-1].speaker or role, known, apart) for role, known in memory.items()]


def _changes(bank: Bank, session: Session, blended: Sequence[tuple[_Found, Sequence[Insight]]]) -> Iterator[Change]:
    """Each insight with what it replaces. Nothing is removed twice, and nothing added that is there word for word."""
    gone: set[str] = set()
    added: set[tuple[Role, str]] = set()
    for found, insights in blended:
        role, turn = found.side.role, found.side.turns[-1]
        known = {unit.text for unit in found.side.memory}
        for number, insight in enumerate(insights):
            replaced = [unit_id for unit_id in insight.replaces if unit_id not in gone and bank.is_live(unit_id)]
            if (role, insight.text) in added or (insight.text in known and not replaced):
                continue
            added.add((role, insight.text))
            gone |= {*replaced}
            unit = _blended(f"{session.id}/{turn.id}/{role}/{number}", insight.text, session, found)
            yield AddUnit(unit, turn.time)
            if insight.operation:
                yield MarkUnit(unit.id, _MARK + insight.operation, 1.0, turn.time)
            yield from (RetireUnit(unit_id, unit.id, insight.operation or "", turn.time) for unit_id in replaced)


def _blended(unit_id: str, text: str, session: Session, found: _Found) -> Unit:
    """An insight comes from the turns that were found, the turn that was said last, and its memories' own sources."""
    unit = _unit(unit_id, found.side.name, text, session, [*found.turns, found.side.turns[-1]])
    older = (source for hit in found.hits for source in hit.unit.sources)
    return replace(unit, sources=tuple(dict.fromkeys((*unit.sources, *older))))


def _unit(unit_id: str, speaker: str, text: str, session: Session, turns: Sequence[Turn]) -> Unit:
    sources = tuple(dict.fromkeys(turn.id for turn in turns))
    time = turns[-1].time
    return Unit(unit_id, text, text, KIND, speaker, session.id, sources, time, time)


def _statement(name: str, turn: Turn) -> Unit:
    """A turn of the dialogue as something to search."""
    return Unit(name, turn.text, turn.text, "turn", turn.speaker, "", (turn.id,), turn.time, turn.time)


def _role(unit: Unit) -> Role:
    """Whose memory a unit belongs to; what was added by hand belongs to the user's."""
    return "assistant" if unit.id.split("/")[-2:-1] == ["assistant"] else "user"


def _text(blended: Sequence[tuple[_Found, Sequence[Insight]]]) -> str:
    """What the reply sees: each side's insights, or the memories found where there are none."""
    shown = [
        (found.side.name, [insight.text for insight in insights] or [hit.unit.text for hit in found.hits])
        for found, insights in blended
    ]
    return "\n\n".join(
        "\n".join([f"About {name}:", *(f"- {text}" for text in texts)]) for name, texts in shown if texts
    )
