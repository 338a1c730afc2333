"""ConditionMem: for each exchange a summary and the knowledge in it; both are searched, and the exchanges themselves.

ConditionMem (Yuan et al., 2023), a baseline of SeCom (section 3): an LLM writes a summary and knowledge for each
dialogue turn, and the most relevant summary, knowledge and raw turn are the context of a new request. The LLM reflects
on whether what was found suffices. Knows nothing of how the index searches.

Differs from the paper: where what was found does not suffice, the LLM words a query of its own, which finds more, at
most `rounds` times; the paper's own numbers are not in the five papers, so k and rounds are ours.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.schemas import answer, boolean, many, text
from localmem.llm.structured_output import says, unusable, usable
from localmem.memory import Memory
from localmem.prompts import render
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated, transcript
from localmem.types import AddUnit, Change, Completion, Exchange, Hit, Prompt, Recall, Session, Unit

KINDS = (("summary",), ("knowledge", "note"), ("exchange",))  # a note is what people add by hand
_RECORD = "conditionmem/record"
_REFLECT = "conditionmem/reflect"
_QUERY = 120  # characters


class ConditionMem(Memory):
    """Units are summaries, pieces of knowledge (at most so many an exchange) and exchanges; `k` of each are recalled.

    `fallbacks` counts answers that could not be used: that exchange is kept as it was said, that reflection is the
    last.
    """

    name = "conditionmem"

    def __init__(
        self,
        *,
        llm: LLM,
        retriever: Retriever,
        k: int,
        rounds: int,
        knowledge: int,
        longest: int,
        bank: Bank | None = None,
    ) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._llm = llm
        self._k = k
        self._rounds = rounds
        self._record = answer(summary=text(longest, empty=True), knowledge=many(text(longest), knowledge))
        self._reflection = answer(enough=boolean(), query=text(_QUERY, empty=True))
        self.fallbacks: Counter[str] = Counter()

    def recall(self, session: Session) -> Recall:
        request, scope = session.turns[-1].text, Scope(now=session.turns[-1].time)
        found = {hit.unit.id: hit for hit in self._nearest(request, scope)}
        for _ in range(self._rounds if found else 0):
            query = self._missing(request, list(found.values()))
            more = [hit for hit in self._nearest(query, scope) if hit.unit.id not in found] if query else []
            if not more:
                break
            found |= {hit.unit.id: hit for hit in more}
        hits = _ordered(found.values())
        return Recall(dated(hit.unit for hit in hits), tuple(hits))

    def end_session(self, session: Session) -> list[Change]:
        exchanges = session.exchanges()
        prompts = [render(_RECORD, form=self._record, dialogue=transcript(each.turns())) for each in exchanges]
        answers = usable(self._llm, prompts, self.fallbacks)
        return [
            AddUnit(unit, unit.learned)
            for number, (exchange, prompt, completion) in enumerate(zip(exchanges, prompts, answers, strict=True))
            for unit in _units(session, number, exchange, self._read(prompt, completion))
        ]

    def _nearest(self, query: str, scope: Scope) -> list[Hit]:
        """The `k` nearest of each kind; the search widens until it has them or there are no more."""
        width = len(KINDS) * self._k
        while True:
            found = self.search(query, width, scope)
            by_kind = [[hit for hit in found if hit.unit.kind in kinds][: self._k] for kinds in KINDS]
            if len(found) < width or all(len(hits) == self._k for hits in by_kind):
                return [hit for hits in by_kind for hit in hits]
            width *= 2

    def _missing(self, request: str, found: Sequence[Hit]) -> str:
        """A query for what is still missing; "" when what was found suffices."""
        shown = dated(hit.unit for hit in _ordered(found))
        prompt = render(_REFLECT, form=self._reflection, memory=shown, request=request)
        (completion,) = usable(self._llm, [prompt], self.fallbacks)
        if completion is None:
            return ""
        match json.loads(completion.text):
            case {"enough": bool(enough), "query": str(query)}:
                return "" if enough else query.strip()
        unusable(_REFLECT, f"its answer {completion.text!r:.80} does not say what is missing", self.fallbacks)
        return ""

    def _read(self, prompt: Prompt, completion: Completion | None) -> list[tuple[str, str]]:
        """Kind and text of what an exchange is remembered as, beside itself."""
        if completion is None:
            return []
        match json.loads(completion.text):
            case {"summary": str(summary), "knowledge": list(items)}:
                told = [("summary", summary), *(("knowledge", item) for item in items if isinstance(item, str))]
                cleaned = dict.fromkeys((kind, " ".join(said.split())) for kind, said in told)
                return [(kind, said) for kind, said in cleaned if says(said, prompt)]
        unusable(_RECORD, f"its answer {completion.text!r:.80} lacks summary or knowledge", self.fallbacks)
        return []


def _ordered(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: hit.unit.time)


def _units(session: Session, number: int, exchange: Exchange, told: Sequence[tuple[str, str]]) -> Iterator[Unit]:
    turns = exchange.turns()
    for place, (kind, said) in enumerate([*told, ("exchange", transcript(turns))]):
        yield Unit(
            id=f"{session.id}/e{number}.{place}",
            text=said,
            key=said,
            kind=kind,
            speaker="",
            session=session.id,
            sources=tuple(turn.id for turn in turns),
            time=turns[0].time,
            learned=session.turns[-1].time,
        )
