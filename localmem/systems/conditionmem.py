"""ConditionMem: for each exchange a summary and the knowledge in it; both are searched, and the exchanges themselves.

ConditionMem (Yuan et al., 2023), a baseline of SeCom (section 3): an LLM writes a summary and knowledge for each
dialogue turn, and the most relevant summary, knowledge and raw turn are the context of a new request. The LLM reflects
on whether what was found suffices.

Differs from the paper: where what was found does not suffice, the LLM writes a query that finds more, at most `rounds`
times. The paper's own numbers are not in the five papers, so k and rounds are ours.
"""

import json
from collections.abc import Iterator, Sequence

from pydantic import NonNegativeInt, PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate
from localmem.llm.structured_output import (
    answer_format,
    array,
    boolean,
    count_fallback,
    generate_usable,
    string,
)
from localmem.memory import Memory
from localmem.prompts import render
from localmem.retrieval.base import Scope
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import add_names, add_units, by_time, dated_lines, new_unit, recall_hits, transcript
from localmem.types import Change, Completion, Exchange, Hit, Prompt, Recall, Session, Unit

KINDS = (("summary",), ("knowledge", "note"), ("exchange",))  # a note is what people add by hand
_RECORD = "conditionmem/record"
_REFLECT = "conditionmem/reflect"
_QUERY = 120  # characters


class ConditionMemOptions(Options):
    """Units of each kind recalled, reflections, knowledge items an exchange, and the most characters of a text."""

    k: PositiveInt
    rounds: NonNegativeInt
    knowledge: PositiveInt
    longest: PositiveInt


class ConditionMem(Memory):
    """Units are summaries, items of knowledge and exchanges; `k` of each are recalled.

    `fallbacks` counts unusable answers: that exchange is remembered word for word only, that reflection is the last.
    """

    name = "conditionmem"

    def __init__(self, parts: Parts, options: ConditionMemOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=parts.new_retriever())
        self._llm = parts.llm
        self._k = options.k
        self._rounds = options.rounds
        text = string(options.longest)
        summary = string(options.longest, empty=True)
        self._record = answer_format(summary=summary, knowledge=array(text, options.knowledge))
        self._reflection = answer_format(enough=boolean(), query=string(_QUERY, empty=True))

    def recall(self, session: Session) -> Recall:
        request, scope = session.turns[-1].text, Scope(now=session.turns[-1].time)
        hits = {hit.unit.id: hit for hit in self._nearest(request, scope)}
        for _ in range(self._rounds if hits else 0):
            query = self._missing(request, list(hits.values()))
            more = [hit for hit in self._nearest(query, scope) if hit.unit.id not in hits] if query else []
            if not more:
                break
            hits |= {hit.unit.id: hit for hit in more}
        return recall_hits(by_time(hits.values()))

    def end_session(self, session: Session) -> list[Change]:
        exchanges = session.exchanges()
        prompts = [
            add_names(render(_RECORD, form=self._record, dialogue=transcript(exchange.turns())), session.turns)
            for exchange in exchanges
        ]
        answers = generate_usable(self._llm, prompts, self.fallbacks)
        gate = Gate(session.turns, self.fallbacks, (unit.key for unit in self.bank.live() if unit.kind != "exchange"))
        units = [
            unit
            for number, (exchange, prompt, completion) in enumerate(zip(exchanges, prompts, answers, strict=True))
            for unit in _units(session, number, exchange, self._read(prompt, completion, gate))
        ]
        return [*add_units(units), *gate.refusals]

    def _nearest(self, query: str, scope: Scope) -> list[Hit]:
        """The `k` nearest of each kind; the search widens until it has them or there are no more."""
        width = len(KINDS) * self._k
        while True:
            hits = self.search(query, width, scope)
            by_kind = [[hit for hit in hits if hit.unit.kind in kinds][: self._k] for kinds in KINDS]
            if len(hits) < width or all(len(nearest) == self._k for nearest in by_kind):
                return [hit for nearest in by_kind for hit in nearest]
            width *= 2

    def _missing(self, request: str, hits: Sequence[Hit]) -> str:
        """A query for what is still missing; "" when the hits suffice."""
        memory = dated_lines(hit.unit for hit in by_time(hits))
        prompt = render(_REFLECT, form=self._reflection, memory=memory, request=request)
        (completion,) = generate_usable(self._llm, [prompt], self.fallbacks)
        if completion is None:
            return ""
        match json.loads(completion.text):
            case {"enough": bool(enough), "query": str(query)}:
                return "" if enough else query.strip()
        count_fallback(_REFLECT, f"its answer {completion.text!r:.80} does not say what is missing", self.fallbacks)
        return ""

    def _read(self, prompt: Prompt, completion: Completion | None, gate: Gate) -> list[tuple[str, str]]:
        """Kind and text of what an exchange is remembered as, apart from its own words."""
        if completion is None:
            return []
        match json.loads(completion.text):
            case {"summary": str(summary), "knowledge": list(items)}:
                texts = [("summary", summary), *(("knowledge", item) for item in items if isinstance(item, str))]
                return [(kind, admitted) for kind, text in texts for admitted in gate.admit(prompt, [text])]
        count_fallback(_RECORD, f"its answer {completion.text!r:.80} lacks summary or knowledge", self.fallbacks)
        return []


def _units(session: Session, number: int, exchange: Exchange, record: Sequence[tuple[str, str]]) -> Iterator[Unit]:
    turns = exchange.turns()
    for place, (kind, text) in enumerate([*record, ("exchange", transcript(turns))]):
        yield new_unit(session, f"e{number}.{place}", text, kind=kind, turns=turns)


SYSTEM = System(
    "conditionmem",
    ConditionMemOptions,
    ConditionMem,
    "a summary and the knowledge of each exchange",
    "for each reply; at each session's end, per exchange",
)
