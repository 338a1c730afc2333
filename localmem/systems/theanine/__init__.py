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
- The query is the last turns, newest first, for encoders cut a long text's end, which would be what was just said.
- Long timelines are shown in part and long dialogues cut, both by a stated rule; the paper's have a few sentences.
- Equal timelines of two hits are shown once.
- A session that is remembered after a later one is linked by the time of its events, not of its remembering.
- "Shuffled" keeps the labelled graph, so that only the showing differs; Table 8 counts no labelling cost for it.

Sentences that were said before are remembered again: that something still holds, or holds again, is an event too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.structured_output import unusable, usable
from localmem.memory import Memory
from localmem.prompts import render
from localmem.retrieval.base import Retriever, Scope
from localmem.systems.theanine.dialogues import latest, note_name
from localmem.systems.theanine.graph import Graph, most_recent
from localmem.systems.theanine.held import Held
from localmem.systems.theanine.link import SIMILAR, Label, Labeller, Pair
from localmem.systems.theanine.options import Options
from localmem.systems.theanine.timelines import Timeline, drawn, random_of, units_of, written
from localmem.text.dialogue import dated, day, transcript
from localmem.text.parse import sentences
from localmem.types import AddLink, AddUnit, Change, Completion, Hit, Link, Recall, Session, SetNote, Turn, Unit

Summarize = Callable[[Sequence[Turn]], list[str]]

_TEMPLATE = 64  # tokens that a chat template adds, at most


class Theanine(Memory):
    """One unit an event; links lead from the earlier event to the later; one note a session holds its dialogue.

    `fallbacks` counts, by prompt name, the answers that could not be used.
    """

    name = "theanine"
    response_prompt = "theanine/respond"

    def __init__(
        self, *, llm: LLM, retriever: Retriever, summarize: Summarize, options: Options, bank: Bank | None = None
    ) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._llm = llm
        self._summarize = summarize
        self._options = options
        self.fallbacks: Counter[str] = Counter()
        self._labeller = Labeller(
            llm, reasoning=options.reasoning, origin_tokens=options.origin_tokens, fallbacks=self.fallbacks
        )
        self._held = Held.of(self.bank)

    def recall(self, session: Session) -> Recall:
        bank = self.bank
        hits = self._nearest(bank, session, self._options.k)
        if not hits:
            return Recall()
        seed = f"{self._options.seed}/{session.id}/{session.turns[-1].id}"
        timelines = [
            timeline.shortened(self._options.longest)
            for timeline in drawn(self._graph(bank), hits, self._options.n, seed)
        ]
        units = units_of(timelines)
        if self._options.show == "timelines":
            return Recall(text="\n\n".join(self._shown(timelines, session)), hits=units)
        if self._options.show == "shuffled":
            loose = random_of(seed, "shuffled").sample(units, len(units))
        else:
            loose = self._nearest(bank, session, len(units))
        return Recall(text=dated(hit.unit for hit in loose), hits=tuple(loose))

    def end_session(self, session: Session) -> list[Change]:
        bank = self.bank
        units = self._units(session)
        if not units:
            return []
        now = session.turns[-1].time
        dialogue = transcript(session.turns)
        changes: list[Change] = [AddUnit(unit, now) for unit in units]
        if self._options.relations:  # what later sessions' events are judged by
            changes.append(SetNote(note_name(session.id), dialogue, now))
        return [*changes, *(AddLink(link, now) for link in self._links(bank, units, dialogue))]

    # -- Phase I: the graph ----------------------------------------------------------------------------------------

    def _units(self, session: Session) -> list[Unit]:
        if not session.turns:
            return []
        now = session.turns[-1].time  # "the time it is formed (summarized)" (section 2.1)
        sources = tuple(turn.id for turn in session.turns)
        return [
            Unit(f"{session.id}/m{number}", text, text, "sentence", "", session.id, sources, now, now)
            for number, text in enumerate(self._summarize(session.turns))
        ]

    def _links(self, bank: Bank, units: Sequence[Unit], dialogue: str) -> Iterator[Link]:
        """The new units' links into the graph as it was before them, each from the earlier event to the later."""
        graph = self._graph(bank)
        pairs = self._associative(bank, units)
        labelled: dict[str, dict[int, tuple[Pair, Label]]] = {unit.id: {} for unit in units}
        for pair, label in zip(pairs, self._labels(bank, pairs, dialogue), strict=True):
            if label is not None:
                labelled[pair.new.id][graph.place[pair.old.id]] = (pair, label)
        for found in labelled.values():
            for position in self._chosen(graph, found):
                pair, label = found[position]
                yield Link(pair.earlier.id, pair.later.id, label.relation, label.probability)

    def _associative(self, bank: Bank, units: Sequence[Unit]) -> list[Pair]:
        """Each new unit with its nearest (I-1), pairs of one older session together."""
        found = self.index.search([unit.key for unit in units], self._options.j, Scope(now=units[-1].time))
        pairs = [
            Pair(bank.units[match.id], unit)
            for unit, matches in zip(units, found, strict=True)
            for match in matches
            if bank.is_live(match.id) and bank.units[match.id].session != unit.session
        ]
        return sorted(pairs, key=lambda pair: pair.old.session)

    def _labels(self, bank: Bank, pairs: Sequence[Pair], dialogue: str) -> list[Label | None]:
        if not self._options.relations:
            return [Label(SIMILAR, None)] * len(pairs)
        dialogues = {pair.old.session: bank.notes.get(note_name(pair.old.session), "") for pair in pairs}
        return self._labeller.label(pairs, dialogues | {pair.new.session: dialogue for pair in pairs})

    def _chosen(self, graph: Graph, labelled: Iterable[int]) -> list[int]:
        """Which labelled units to link to (I-2)."""
        return most_recent(graph, labelled) if self._options.linking == "recent" else sorted(labelled, key=graph.order)

    def _graph(self, bank: Bank) -> Graph:
        self._held = held = self._held.at(bank)
        return held.graph

    # -- Phase II: timelines ---------------------------------------------------------------------------------------

    def _nearest(self, bank: Bank, session: Session, k: int) -> list[Hit]:
        query = transcript(reversed(session.turns[-self._options.query_turns :]))  # newest first: encoders drop the end
        if not query:
            return []
        matches = self.index.search([query], k, Scope(now=session.turns[-1].time))[0]
        return [Hit(bank.units[match.id], match.score) for match in matches if bank.is_live(match.id)]

    def _shown(self, timelines: Sequence[Timeline], session: Session) -> list[str]:
        raw = [written(timeline) for timeline in timelines]
        return self._refined(raw, session) if self._options.refine else raw

    def _refined(self, raw: Sequence[str], session: Session) -> list[str]:
        """Each timeline rewritten for the dialogue (II-2), all at once; one that comes back empty stays as it was."""
        today = day(session.turns[-1].time)
        dialogue = latest(session.turns, self._room(raw, today), self._llm.count_tokens)
        prompts = [render("theanine/refine", today=today, dialogue=dialogue, timeline=text) for text in raw]
        answers = usable(self._llm, prompts, self.fallbacks)
        return [self._text(answer) or text if answer else text for answer, text in zip(answers, raw, strict=True)]

    def _text(self, answer: Completion) -> str:
        kept = sentences(answer.text)
        if answer.finish == "length":
            kept = kept[:-1]  # the last sentence was cut in the middle
        if not kept:
            unusable("theanine/refine", "no whole sentence came back", self.fallbacks)
        return " ".join(kept)

    def _room(self, raw: Sequence[str], today: str) -> int:
        """Tokens of dialogue that fit beside the longest timeline, the instructions and the answer."""
        bare = [render("theanine/refine", today=today, dialogue="", timeline=text) for text in raw]
        sizes = self._llm.count_tokens([message.content for prompt in bare for message in prompt.messages])
        used = max(sum(sizes[start : start + 2]) for start in range(0, len(sizes), 2))
        return self._llm.context_length - used - bare[0].max_tokens - _TEMPLATE
