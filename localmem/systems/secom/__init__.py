"""SeCom: topical segments of past dialogue, found by denoised keys and shown as they were said (ICLR 2025).

What the paper says. A session is cut into segments of exchanges in one zero-shot call (section 2.2, eq. 1, Figure 6);
where labelled dialogues exist, a learned rubric joins the prompt (Figures 7 and 8, appendix A.1; `localmem eval
segmentation --reflect` learns one, `rubric` names its file). Each unit is compressed before it is indexed (section 2.3,
eq. 2), by LLMLingua-2 to 75 % of its tokens (section 3). For a request u* the nearest units are found under a budget
and shown in time order (section 2): the original segments, neither compressed nor summarised. The budget is 1,000
tokens (about 3 segments) on Long-MT-Bench+ and 4,000 (about 10) on LoCoMo (Table 1). Baselines on the same code: a unit
an exchange ("turn-level") and a unit a session, with and without compression.

Differs from the paper:
- An answer that leaves exchanges out or puts them in two segments is mended; one that cannot be used gives segments of
  three exchanges. Both are counted.
- A session longer than the model's context is segmented in parts.
- The best unit is shown even when it is over the budget in tokens, as the paper's session level shows (Table 1: one
  session of 3,680 tokens under 1,000); after it, units are taken as long as they fit.
- Incremental segmentation is ours: each exchange is judged when it was answered, and the session's end costs no call.

Knows nothing of how segments are made, compressed or searched: those are parts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.retrieval.base import Retriever, Scope
from localmem.systems.secom.incremental import STARTS, Continuation, open_turns, read, segments, write
from localmem.text.base import Compressor, Segmenter
from localmem.text.dialogue import day, transcript
from localmem.text.tokens import within
from localmem.text.units import said
from localmem.types import AddUnit, Change, Exchange, Hit, Recall, Session, SetNote, Turn, Unit

__all__ = ["Continuation", "IncrementalSeCom", "SeCom"]

_WIDTH = 32  # units searched for at first where only tokens limit them


class SeCom(Memory):
    """One unit a segment: its text is what was said, its key what is left of that after compression.

    `kind` is what units are called (segment, turn or session, as the segmenter makes them). At most `k` units and
    `tokens` tokens are shown; 0 sets no limit. Without a `compressor` keys are texts. `fallbacks` is the counter that
    the parts were given.
    """

    name = "secom"

    def __init__(
        self,
        *,
        llm: LLM,
        retriever: Retriever,
        segmenter: Segmenter,
        k: int,
        tokens: int,
        rate: float,
        compressor: Compressor | None = None,
        kind: str = "segment",
        bank: Bank | None = None,
        fallbacks: Counter[str] | None = None,
    ) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._llm = llm
        self._segmenter = segmenter
        self._k = k
        self._tokens = tokens
        self._rate = rate
        self._compressor = compressor
        self._kind = kind
        self.fallbacks: Counter[str] = Counter() if fallbacks is None else fallbacks

    def recall(self, session: Session) -> Recall:
        hits = sorted(self._nearest(session.turns[-1]), key=lambda hit: _place(hit.unit))
        text = "\n\n".join(f"{day(hit.unit.time)}\n{hit.unit.text}" for hit in hits)
        return Recall(text=text, hits=tuple(hits))

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        units = self._units(session, self._segments(session))
        return [AddUnit(unit, session.turns[-1].time) for unit in units]

    def _segments(self, session: Session) -> list[range]:
        return self._segmenter.segment([session])[0]

    def _units(self, session: Session, found: Sequence[range]) -> list[Unit]:
        exchanges = session.exchanges()
        runs = [[turn for exchange in exchanges[s.start : s.stop] for turn in exchange.turns()] for s in found]
        runs = [run for run in runs if any(turn.text.strip() for turn in run)]
        texts = [transcript(run) for run in runs]
        keys = self._compressor.compress(texts, self._rate) if self._compressor and texts else texts
        return [
            said(session, f"g{number}", run, self._kind, key)
            for number, (run, key) in enumerate(zip(runs, keys, strict=True))
        ]

    def _nearest(self, asked: Turn) -> list[Hit]:
        """The units nearest to a turn, as many as the budget allows, best first."""
        width = self._k or _WIDTH
        while True:
            hits = self.search(asked.text, width, Scope(now=asked.time))
            fitting = self._fitting(hits)
            if fitting < len(hits) or self._k or len(hits) < width:
                return hits[: max(fitting, 1)]
            width *= 2

    def _fitting(self, hits: Sequence[Hit]) -> int:
        texts = [hit.unit.text for hit in hits]
        return within(texts, self._tokens, self._llm.count_tokens) if self._tokens and texts else len(hits)


class IncrementalSeCom(SeCom):
    """Segments are decided while the session goes on, and wait in a note for its end.

    A session that no reply was given in is segmented at its end, as by SeCom.
    """

    def __init__(
        self,
        *,
        llm: LLM,
        retriever: Retriever,
        segmenter: Segmenter,
        continuation: Continuation,
        k: int,
        tokens: int,
        rate: float,
        compressor: Compressor | None = None,
        bank: Bank | None = None,
        fallbacks: Counter[str] | None = None,
    ) -> None:
        super().__init__(
            llm=llm,
            retriever=retriever,
            segmenter=segmenter,
            k=k,
            tokens=tokens,
            rate=rate,
            compressor=compressor,
            bank=bank,
            fallbacks=fallbacks,
        )
        self._continuation = continuation

    def recall(self, session: Session) -> Recall:
        """As SeCom's, with the open segment, by which `observe` judges the exchange; it commits another note."""
        shown = self._continuation.shown(open_turns(session, self._starts().get(session.id, [])))
        opened = SetNote(f"{STARTS}/{session.id}", shown, session.turns[-1].time)
        return replace(super().recall(session), proposed=(opened,))

    def observe(self, exchange: Exchange) -> list[Change]:
        """Whether the exchange begins a segment is noted."""
        shown = exchange.recall.proposed if exchange.recall else ()
        if exchange.user is None or not shown:
            return []
        (opened,) = (change for change in shown if isinstance(change, SetNote))
        session = opened.name.removeprefix(f"{STARTS}/")
        starts = self._starts()
        begun = starts.get(session, [])
        if exchange.user.id not in begun and opened.text and not self._continuation.goes_on(opened.text, exchange):
            begun = [*begun, exchange.user.id]
        if starts.get(session) == begun:
            return []
        return [SetNote(STARTS, write(starts | {session: begun}), exchange.user.time)]

    def end_session(self, session: Session) -> list[Change]:
        starts = self._starts()
        closed = starts.pop(session.id, None) is not None
        note = [SetNote(STARTS, write(starts), session.turns[-1].time)] if closed and session.turns else []
        return [*super().end_session(session), *note]

    def _segments(self, session: Session) -> list[range]:
        begun = self._starts().get(session.id)
        return super()._segments(session) if begun is None else segments(session, begun)

    def _starts(self) -> dict[str, list[str]]:
        return read(self.bank.notes.get(STARTS, ""))


def _place(unit: Unit) -> tuple[datetime, datetime, str, int]:
    """Time order; segments of one session in the order in which they were said."""
    number = unit.id.rpartition("/g")[2]
    return unit.time, unit.learned, unit.session, int(number) if number.isdecimal() else 0  # 0: added by hand
