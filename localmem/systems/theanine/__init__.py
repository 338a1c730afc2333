"""Theanine: memories linked into a graph by how one led to another, recalled as timelines (NAACL 2025).

What the paper says. A session's end (Phase I, Algorithm 1): the LLM summarises the session into memories
m = (event, time) (eq. 3). For each, the j = 3 most similar units of the graph are its associative memories; units of
the same session are not in it yet (I-1; line 12 of the algorithm). For each pair the LLM names a relation, from both
events, their times and their origin dialogues: one of six, else SameTopic, else None (I-2, eq. 6; appendix B.1, Figure
22). The new unit is linked to the most recent labelled unit of each connected component (eq. 7-8). Nothing is removed.

A reply (Phase II, Algorithm 2): the k = 3 units nearest to the current dialogue are found; for each, n = 1 timeline is
drawn from the paths that begin at the oldest unit of its component, contain it and end where nothing follows (eq. 9-10,
footnote 6); the LLM rewrites it for the dialogue (eq. 11, Figure 23); the reply sees the rewritten timelines (eq. 12,
Figure 24) and is sampled at temperature 0.75 (section 3.3). Ablations: section 4, Tables 2 and 5.

Differs from the paper:
- Where the oldest unit of a component does not lead to the hit, the oldest unit that does is the start.
- The relation is a constrained choice in two steps, with its probability; `reasoning` adds the paper's explanation.
- Summaries, labels and refinements are greedy (eq. 11 takes the likeliest; the paper states 0.75 for summaries).
- The query is the last turns, newest first, because encoders cut the end of a long text, here the oldest turns.
- Long timelines and long dialogues are shortened by a stated rule; the paper's have a few sentences.
- Equal timelines of two hits are shown once.
- A session that is remembered after a later one is linked by the time of its events.
- "Shuffled" uses the labelled graph, so that only what is shown differs; Table 8 counts no labelling cost for it.

Sentences identical to existing ones are remembered again: that something still holds, or holds again, is an event too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from pydantic import PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate
from localmem.llm.base import LLM
from localmem.llm.structured_output import count_fallback, generate_usable
from localmem.memory import Memory
from localmem.prompts import render
from localmem.retrieval.base import Retriever, Scope
from localmem.summaries.summarize import Summarizer
from localmem.systems import Options, Parts, System
from localmem.systems.theanine.graph import (
    BankGraph,
    Graph,
    Timeline,
    draw_timelines,
    most_recent,
    seeded_random,
    timeline_hits,
    timeline_text,
)
from localmem.systems.theanine.link import SIMILAR, Label, Labeller, Pair, note_name
from localmem.text.dialogue import add_units, day, free_tokens, latest_turns, recall_hits, statement_units, transcript
from localmem.text.parse import complete_sentences
from localmem.types import AddLink, Change, Completion, Hit, Link, Recall, Session, SetNote, Turn, Unit

Summarize = Callable[[Sequence[Turn], Gate], list[str]]


class TheanineOptions(Options):
    """Theanine's settings. The first eight are the paper's (j, k, n, its ablations and variants), the others ours."""

    j: PositiveInt
    k: PositiveInt
    n: PositiveInt
    relations: bool
    reasoning: bool
    linking: Literal["recent", "all"]
    refine: bool
    show: Literal["timelines", "shuffled", "nearest"]
    seed: int
    query_turns: PositiveInt
    longest: PositiveInt
    origin_tokens: PositiveInt


class Theanine(Memory):
    """One unit an event; links lead from the earlier event to the later; one note a session holds its dialogue."""

    name = "theanine"
    response_prompt = "theanine/respond"

    def __init__(
        self,
        *,
        llm: LLM,
        retriever: Retriever,
        summarize: Summarize,
        options: TheanineOptions,
        bank: Bank | None = None,
    ) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._llm = llm
        self._summarize = summarize
        self._options = options
        self._labeller = Labeller(
            llm, reasoning=options.reasoning, origin_tokens=options.origin_tokens, fallbacks=self.fallbacks
        )
        self._bank_graph = BankGraph.of(self.bank)

    def recall(self, session: Session) -> Recall:
        bank = self.bank
        hits = self._nearest(bank, session, self._options.k)
        if not hits:
            return Recall()
        seed = f"{self._options.seed}/{session.id}/{session.turns[-1].id}"
        timelines = [
            timeline.shorten_to(self._options.longest)
            for timeline in draw_timelines(self._graph(bank), hits, self._options.n, seed)
        ]
        units = timeline_hits(timelines)
        if self._options.show == "timelines":
            return Recall(text="\n\n".join(self._texts(timelines, session)), hits=units)
        if self._options.show == "shuffled":
            return recall_hits(seeded_random(seed, "shuffled").sample(units, len(units)))
        return recall_hits(self._nearest(bank, session, len(units)))

    def end_session(self, session: Session) -> list[Change]:
        bank = self.bank
        gate = Gate(session.turns, self.fallbacks)
        sentences = self._summarize(session.turns, gate) if session.turns else []
        if not sentences:
            return [*gate.refusals]
        units = statement_units(session, sentences, "sentence", prefix="m")
        now = session.turns[-1].time  # "the time it is formed (summarized)" (section 2.1)
        dialogue = transcript(session.turns)
        changes = add_units(units)
        if self._options.relations:  # later sessions' events are compared with the dialogue
            changes.append(SetNote(note_name(session.id), dialogue, now))
        links = [AddLink(link, now) for link in self._links(bank, units, dialogue)]
        return [*changes, *links, *gate.refusals]

    # -- Phase I: the graph

    def _links(self, bank: Bank, units: Sequence[Unit], dialogue: str) -> Iterator[Link]:
        """The new units' links into the graph as it was before them, each from the earlier event to the later."""
        graph = self._graph(bank)
        pairs = self._associative(bank, units)
        labelled: dict[str, dict[int, tuple[Pair, Label]]] = {unit.id: {} for unit in units}
        for pair, label in zip(pairs, self._labels(bank, pairs, dialogue), strict=True):
            if label is not None:
                labelled[pair.new.id][graph.place[pair.old.id]] = (pair, label)
        for candidates in labelled.values():
            for position in self._targets(graph, candidates):
                pair, label = candidates[position]
                yield Link(pair.earlier.id, pair.later.id, label.relation, label.probability)

    def _associative(self, bank: Bank, units: Sequence[Unit]) -> list[Pair]:
        """Each new unit with its nearest (I-1), pairs of one older session together."""
        rows = self.index.search([unit.key for unit in units], self._options.j, Scope(now=units[-1].time))
        pairs = [
            Pair(bank.units[match.id], unit)
            for unit, matches in zip(units, rows, strict=True)
            for match in matches
            if bank.is_live(match.id) and bank.units[match.id].session != unit.session
        ]
        return sorted(pairs, key=lambda pair: pair.old.session)

    def _labels(self, bank: Bank, pairs: Sequence[Pair], dialogue: str) -> list[Label | None]:
        if not self._options.relations:
            return [Label(SIMILAR, None)] * len(pairs)
        dialogues = {pair.old.session: bank.notes.get(note_name(pair.old.session), "") for pair in pairs}
        return self._labeller.label(pairs, dialogues | {pair.new.session: dialogue for pair in pairs})

    def _targets(self, graph: Graph, labelled: Iterable[int]) -> list[int]:
        """Which labelled units to link to (I-2)."""
        return most_recent(graph, labelled) if self._options.linking == "recent" else sorted(labelled, key=graph.order)

    def _graph(self, bank: Bank) -> Graph:
        self._bank_graph = current = self._bank_graph.advance(bank)
        return current.graph

    # -- Phase II: timelines

    def _nearest(self, bank: Bank, session: Session, k: int) -> list[Hit]:
        query = transcript(reversed(session.turns[-self._options.query_turns :]))  # newest first: encoders drop the end
        if not query:
            return []
        matches = self.index.search([query], k, Scope(now=session.turns[-1].time))[0]
        return [Hit(bank.units[match.id], match.score) for match in matches if bank.is_live(match.id)]

    def _texts(self, timelines: Sequence[Timeline], session: Session) -> list[str]:
        raw = [timeline_text(timeline) for timeline in timelines]
        return self._refine(raw, session) if self._options.refine else raw

    def _refine(self, raw: Sequence[str], session: Session) -> list[str]:
        """Each timeline rewritten for the dialogue (II-2), all at once; unchanged when the answer is empty."""
        today = day(session.turns[-1].time)
        dialogue = transcript(latest_turns(session.turns, self._room(raw, today), self._llm.count_tokens))
        prompts = [render("theanine/refine", today=today, dialogue=dialogue, timeline=text) for text in raw]
        answers = generate_usable(self._llm, prompts, self.fallbacks)
        return [self._text(answer) or text if answer else text for answer, text in zip(answers, raw, strict=True)]

    def _text(self, answer: Completion) -> str:
        sentences = complete_sentences(answer)
        if not sentences:
            count_fallback("theanine/refine", "its answer holds no complete sentence", self.fallbacks)
        return " ".join(sentences)

    def _room(self, raw: Sequence[str], today: str) -> int:
        """Tokens of dialogue that fit next to the longest timeline, the instructions and the answer."""
        bare = [render("theanine/refine", today=today, dialogue="", timeline=text) for text in raw]
        return free_tokens(self._llm, *bare)


def _make(parts: Parts, options: TheanineOptions, bank: Bank | None) -> Memory:
    return Theanine(
        llm=parts.llm,
        retriever=parts.new_retriever(),
        summarize=Summarizer(parts.llm, prompt="theanine/summarize"),
        options=options,
        bank=bank,
    )


SYSTEM = System(
    "theanine",
    TheanineOptions,
    _make,
    "a graph of events, recalled as timelines",
    "for each reply; at each session's end, per pair",
)
